import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { databaseText, findCanaries, secret } from '@stowage/tests/support/canaries';
import { expectStatus, logIn, until } from '@stowage/tests/support/client';
import type { Answer, Client, Json } from '@stowage/tests/support/client';
import { admin, mode } from '@stowage/tests/support/contract';
import { startKubernetesApi } from '@stowage/tests/support/kubernetes-api';
import type { KubernetesApi } from '@stowage/tests/support/kubernetes-api';
import { expectProblem } from '@stowage/tests/support/problems';
import { describeWith, s3Server, webdavServer } from '@stowage/tests/support/real-servers';
import { makeBucket } from '@stowage/tests/support/remote-backends';
import { runApply } from '@stowage/tests/support/run-apply';
import { startSystem, uniqueName } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';

const name = 'storage-keys';
const late = 'late-keys';
const ref = (key: string, of = name): Json => ({ secret_ref: { name: of, key } });
const word = (): string => `canary${randomBytes(12).toString('hex')}`;

/** At an address where nobody listens. */
const nowhere = { endpoint: 'http://127.0.0.1:9', region: 'us-east-1' };
const s3 = (config: Json): Json => {
  return { name: uniqueName('s3'), type: 's3', config: { ...nowhere, bucket: uniqueName('bucket'), ...config } };
};

test('Without a setting that names them, a reference is refused at its field', async () => {
  const config = { access_key_id: 'id', secret_access_key: ref('key') };
  const json = expectProblem(await (await admin()).post('/api/backends', s3(config)), 400, 'validation_failed');
  expect(json['errors']).toEqual([
    { pointer: '/config/secret_access_key', detail: expect.stringMatching(/STOWAGE_SECRET_REFS/) },
  ]);
});

describe('References to Kubernetes Secrets', () => {
  let kubernetes: KubernetesApi;
  let system: System;
  let root: Client;
  /** Everything that was answered, or logged before a restart. */
  const answered: string[] = [];
  const planted: string[] = [];

  beforeAll(async () => {
    kubernetes = await startKubernetesApi([name, late]);
    system = await startSystem(mode(), {
      STOWAGE_SECRET_REFS: `${name},${late}`,
      KUBECONFIG: kubernetes.kubeconfig,
      STOWAGE_LOG_LEVEL: 'trace',
    });
    root = await logIn(system.url);
  });
  afterAll(async () => {
    await system.close();
    await kubernetes.close();
  });
  beforeEach(() => kubernetes.fail(null));

  const noted = (answer: Answer): Answer => {
    answered.push(JSON.stringify([...answer.headers]), answer.bytes.toString());
    return answer;
  };
  const make = async (body: Json): Promise<Json> => {
    return expectStatus(noted(await root.post('/api/backends', body)), 201).json;
  };
  const patch = async (backend: Json, config: Json): Promise<Answer> => {
    return noted(await root.call('PATCH', `/api/backends/${backend['id']}`, { body: { config } }));
  };
  const read = async ({ id }: Json): Promise<Json> => {
    return expectStatus(noted(await root.get(`/api/backends/${id}`)), 200).json;
  };
  const put = (of: string, values: Record<string, string> | null): void => {
    planted.push(...Object.values(values ?? {}));
    kubernetes.put(of, values);
  };
  const untilHealth = async (backend: Json, status: string, detail: RegExp): Promise<Json> => {
    return until(async () => {
      const { health } = await read(backend);
      return health.status === status && detail.test(health.detail ?? '') ? health : null;
    }, 45_000);
  };

  test('are shown by name, beside sealed secrets, and a field goes from one to the other and back', async () => {
    put(name, { id: word(), key: word() });
    const made = await make(s3({ access_key_id: ref('id'), secret_access_key: word() }));
    expect(made).toMatchObject({
      secret_fields: ['access_key_id', 'secret_access_key'],
      secret_refs: { access_key_id: { name, key: 'id' } },
    });
    const other = expectStatus(await patch(made, { secret_access_key: ref('key') }), 200).json;
    expect(other['secret_refs']).toEqual({
      access_key_id: { name, key: 'id' },
      secret_access_key: { name, key: 'key' },
    });
    expect(other['version']).toBe(2);
    for (const config of [{}, { access_key_id: null }, { access_key_id: '' }]) {
      expect(expectStatus(await patch(made, config), 200).json['secret_refs']).toEqual(other['secret_refs']);
    }
    const sealed = expectStatus(await patch(made, { access_key_id: word() }), 200).json;
    expect(sealed).toMatchObject({
      secret_fields: ['access_key_id', 'secret_access_key'],
      secret_refs: { secret_access_key: { name, key: 'key' } },
    });
  });

  test.each([
    [
      'of a name that is not allowed',
      { secret_ref: { name: 'database', key: 'key' } },
      /STOWAGE_SECRET_REFS does not allow/,
    ],
    ['of no name that can be', { secret_ref: { name: '../database', key: 'key' } }, /names no Kubernetes Secret/],
    ['of no key that can be', { secret_ref: { name, key: 'a/b' } }, /names no key/],
  ])('%s are refused at their field', async (_, value, detail) => {
    const answer = noted(await root.post('/api/backends', s3({ access_key_id: 'id', secret_access_key: value })));
    expectProblem(answer, 400, 'validation_failed');
    expect(answer.json['errors']).toEqual([
      { pointer: '/config/secret_access_key', detail: expect.stringMatching(detail) },
    ]);
  });

  test.each([{ secret_ref: { name } }, { secret_ref: { name, key: 'key', more: 1 } }, { secret_ref: null }, {}])(
    'of another form, as %j, are refused',
    async (value) => {
      const answer = await root.post('/api/backends', s3({ access_key_id: 'id', secret_access_key: value }));
      expectProblem(noted(answer), 400, 'validation_failed');
    },
  );

  test('to what is not there make the backend unhealthy, with the reason, until it comes', async () => {
    put(late, null);
    const made = await make(s3({ access_key_id: 'id', secret_access_key: ref('key', late) }));
    expect(made['health']).toMatchObject({
      status: 'unhealthy',
      detail: `open: There is no Kubernetes Secret "${late}".`,
    });
    put(late, { other: word() });
    await untilHealth(made, 'unhealthy', /^open: The Kubernetes Secret "late-keys" has no key "key"\.$/);
    put(late, { key: 'two\nlines' });
    await untilHealth(made, 'unhealthy', /holds no text of one line/);
    put(late, { key: `${word()}\n` });
    // The value is taken now; that nobody listens there is another matter.
    await untilHealth(made, 'unhealthy', /can not be reached/);
    put(late, null);
    await untilHealth(made, 'unhealthy', /There is no Kubernetes Secret/);
  });

  test('may be declared in a file, and a second run changes nothing', async () => {
    put(name, { id: word(), key: word() });
    const { name: own, type, config } = s3({ access_key_id: ref('id'), secret_access_key: ref('key') });
    const declared = { backends: [{ name: own, type, config }] };
    expect((await runApply(system.url, declared)).code).toBe(0);
    expect((await runApply(system.url, declared)).lines).toEqual(['0 changed, 1 as declared already, 0 refused']);
    const moved = { backends: [{ name: own, type, config: { ...config, access_key_id: ref('key') } }] };
    expect((await runApply(system.url, moved)).lines[0]).toMatch(/changed: access_key_id; /);
  });

  describeWith('WebDAV', webdavServer(), (server) => {
    const body = (): Json => ({
      name: uniqueName('webdav'),
      type: 'webdav',
      config: {
        url: server.url,
        root_path: `/${uniqueName('folder')}`,
        username: server.user,
        password: ref('password'),
      },
    });

    test('are used, and a rotated Secret is what is used from then on, without a restart and after one', async () => {
      kubernetes.put(name, { password: server.password });
      const made = await untilMade(body());
      put(name, { password: word() });
      await untilHealth(made, 'unhealthy', /password/);
      kubernetes.put(name, { password: `${server.password}\n` });
      await untilHealth(made, 'healthy', /^$/);

      await until(async () => kubernetes.watchers() >= 1);
      kubernetes.cutWatches();
      put(name, { password: word() });
      await untilHealth(made, 'unhealthy', /password/);
      await until(async () => kubernetes.watchers() >= 1);
      kubernetes.expireWatches();
      kubernetes.put(name, { password: server.password });
      await untilHealth(made, 'healthy', /^$/);

      // While Kubernetes is away what was read last is used; after a restart there is nothing yet, and then it comes.
      kubernetes.fail(503);
      kubernetes.cutWatches();
      expect(expectStatus(await root.post(`/api/backends/${made['id']}/check`), 200).json['health'].status).toBe(
        'healthy',
      );
      expect(await system.stop()).toBe(0);
      answered.push(system.output());
      await system.restart();
      root = await logIn(system.url);
      expectStatus(await root.get('/api/system/ready'), 200);
      const { json } = expectStatus(await root.post(`/api/backends/${made['id']}/check`), 200);
      expect(json['health'].detail).toMatch(/could not be looked at yet/);
      kubernetes.fail(null);
      await untilHealth(made, 'healthy', /^$/);
    }, 180_000);

    const untilMade = async (wanted: Json): Promise<Json> => {
      const made = await make(wanted);
      await untilHealth(made, 'healthy', /^$/);
      return made;
    };
  });

  describeWith('S3', s3Server(), (server) => {
    test('are what content is written and read with, before and after a rotation', async () => {
      kubernetes.put(name, { id: server.accessKey, key: server.secretKey });
      const config = { endpoint: server.url, region: 'us-east-1', bucket: await makeBucket(server) };
      const keys = { access_key_id: ref('id'), secret_access_key: ref('key') };
      const made = await make({ name: uniqueName('s3'), type: 's3', config: { ...config, ...keys } });
      await untilHealth(made, 'healthy', /^$/);
      const policy = { backends: [made['id']], replicas: 1 };
      expectStatus(await root.call('PUT', '/api/policies/placement/rotated', { body: policy }), 200);
      const file = await root.putFile(uniqueName(), 'content', { fileClass: 'rotated' });
      const download = `/api/files/${file['id']}/download`;
      put(name, { id: word(), key: word() });
      await untilHealth(made, 'unhealthy', /access key/);
      expectProblem(await root.get(download), 503, 'unavailable');
      kubernetes.put(name, { id: server.accessKey, key: server.secretKey });
      await untilHealth(made, 'healthy', /^$/);
      expect(expectStatus(await root.get(download), 200).bytes.toString()).toBe('content');
    }, 120_000);
  });

  test('leave their values in no answer, no log, no export and nowhere in the database', async () => {
    const { bytes } = expectStatus(await root.get('/api/exports/metadata'), 200);
    const canaries = [...planted, kubernetes.token].map((value, n) => secret(`value ${n}`, value.trim()));
    expect(canaries.length).toBeGreaterThan(5);
    const database = [...(await databaseText(system.databaseUrl)).values()].join('\n');
    const seen = [...answered, bytes.toString(), system.output(), database].join('\n');
    expect(findCanaries(seen, canaries)).toEqual([]);
    const shown = JSON.parse(bytes.toString())['backends'].find((backend: Json) => backend['type'] === 's3');
    expect(shown['secret_fields']).toEqual(['access_key_id', 'secret_access_key']);
    expect(JSON.stringify(shown)).not.toContain(name);
  });
});
