import { beforeAll, describe, expect, test } from '@jest/globals';
import { mkdir, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { defaultBackend, freeFolder, makeBackend, newBackend } from '@stowage/tests/support/backends';
import { expectStatus } from '@stowage/tests/support/client';
import type { Answer, Client, Json } from '@stowage/tests/support/client';
import { admin } from '@stowage/tests/support/contract';
import { expectProblem } from '@stowage/tests/support/problems';
import { uniqueName } from '@stowage/tests/support/system';

const markerName = '.stowage-backend.json';
let root: Client;

beforeAll(async () => {
  root = await admin();
});

function patch(id: string, body: Json, headers: Record<string, string> = {}): Promise<Answer> {
  return root.call('PATCH', `/api/backends/${id}`, { body, headers });
}

async function read(id: string): Promise<Json> {
  return expectStatus(await root.get(`/api/backends/${id}`), 200).json;
}

function pointersOf(answer: Answer): string[] {
  expectProblem(answer, 400, 'validation_failed');
  return answer.json['errors'].map((error: Json) => error['pointer']).sort();
}

describe('A new backend', () => {
  test('is 201 with Location and ETag, checked, enabled and marked as its own', async () => {
    const body = await newBackend(root);
    const answer = expectStatus(await root.post('/api/backends', body), 201);
    const { id } = answer.json;
    expect(answer.headers.get('location')).toBe(`/api/backends/${id}`);
    expect(answer.headers.get('etag')).toBe('"1"');
    expect(answer.json).toMatchObject({
      ...body,
      state: 'enabled',
      is_default: false,
      secret_fields: [],
      health: { status: 'healthy', detail: null, checked_at: expect.any(String), latency_ms: expect.any(Number) },
      usage: { replicas: 0, bytes: 0 },
      version: 1,
    });
    expect(JSON.parse(await readFile(join(body['config'].root_path, markerName), 'utf8'))).toEqual({ backend_id: id });
    const { deletable, ...read } = (await root.get(`/api/backends/${id}`)).json;
    expect(read).toEqual(answer.json);
    expect(deletable).toEqual({ ok: false, blockers: [{ code: 'not_disabled' }] });
  });

  test('has a name of its own', async () => {
    const body = await newBackend(root);
    expectStatus(await root.post('/api/backends', body), 201);
    const other = { ...(await newBackend(root)), name: body['name'] };
    expectProblem(await root.post('/api/backends', other), 409, 'name_conflict');
    const backend = await makeBackend(root);
    expectProblem(await patch(backend['id'], { name: body['name'] }), 409, 'name_conflict');
  });

  test('is made once for one Idempotency-Key', async () => {
    const headers = { 'idempotency-key': uniqueName('key') };
    const body = await newBackend(root);
    const first = expectStatus(await root.post('/api/backends', body, headers), 201);
    const again = expectStatus(await root.post('/api/backends', body, headers), 201);
    expect(again.json).toEqual(first.json);
    expect(again.headers.get('location')).toBe(first.headers.get('location'));
    expectProblem(await root.post('/api/backends', await newBackend(root), headers), 422, 'idempotency_key_reused');
  });

  test('that can’t be used is made all the same, and says why', async () => {
    const folder = await freeFolder(root);
    await mkdir(folder);
    await writeFile(join(folder, markerName), JSON.stringify({ backend_id: (await defaultBackend(root))['id'] }));
    const body = { ...(await newBackend(root)), config: { root_path: folder } };
    const { json } = expectStatus(await root.post('/api/backends', body), 201);
    expect(json['health']).toMatchObject({ status: 'unhealthy', detail: expect.stringMatching(/^marker: .*another/) });
    expect(json['health'].detail).not.toContain(folder);
  });

  test.each([
    ['relative', async () => 'backends/x'],
    ['of the system', async () => '/'],
    ['of the kernel', async () => '/proc'],
    ['outside every root', async () => '/tmp'],
    ['with dots', async () => `${await freeFolder(root)}/../../x`],
    ['that leads out by a link', linkOut],
    ['of another backend', async () => (await makeBackend(root))['config'].root_path],
    ['within another backend', async () => join((await makeBackend(root))['config'].root_path, 'inner')],
    ['around other backends', async () => dirname(await freeFolder(root))],
    ['of the default backend, by a link', linkToDefault],
    ['with a zero byte', async () => `${await freeFolder(root)}\0x`],
  ])('may not have a folder %s', async (_what, folder) => {
    const root_path = await folder();
    expect(
      pointersOf(await root.post('/api/backends', { ...(await newBackend(root)), config: { root_path } })),
    ).toEqual(['/config/root_path']);
    const { id } = await makeBackend(root);
    expect(pointersOf(await patch(id, { config: { root_path } }))).toEqual(['/config/root_path']);
  });

  async function linkOut(): Promise<string> {
    const link = await freeFolder(root);
    await symlink('/tmp', link);
    return join(link, 'x');
  }

  async function linkToDefault(): Promise<string> {
    const link = await freeFolder(root);
    await symlink((await defaultBackend(root))['config'].root_path, link);
    return link;
  }

  test.each([
    ['s3', 'prefix', 'a/b', 'a'],
    ['s3', 'prefix', 'a', 'a/'],
    ['s3', 'prefix', 'a', ''],
    ['webdav', 'root_path', '/a', '/a/b'],
    ['webdav', 'root_path', '/a', '/'],
  ])('may not lie in, or around, another one over the network (%s %s %s %s)', async (type, field, first, second) => {
    const bucket = uniqueName('bucket');
    const server = 'http://127.0.0.1:9';
    const place: Json =
      type === 's3'
        ? { endpoint: server, region: 'r', bucket, access_key_id: 'i', secret_access_key: 'k' }
        : { url: `${server}/${bucket}`, username: 'u', password: 'p' };
    const make = (at: string): Promise<Answer> =>
      root.post('/api/backends', { name: uniqueName('backend'), type, config: { ...place, [field]: at } });
    expectStatus(await make(first), 201);
    expect(pointersOf(await make(second))).toEqual([`/config/${field}`]);
    const { id } = expectStatus(await make(`${first.slice(0, -1)}z`), 201).json;
    expect(pointersOf(await patch(id, { config: { [field]: second } }))).toEqual([`/config/${field}`]);
    expect((await read(id))['config'][field]).toBe(`${first.slice(0, -1)}z`);
  });

  test('of two with one folder at the same moment one is made', async () => {
    const config = { root_path: await freeFolder(root) };
    const bodies = await Promise.all([1, 2, 3].map(async () => ({ ...(await newBackend(root)), config })));
    const answers = await Promise.all(bodies.map((body) => root.post('/api/backends', body)));
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(1);
  });
});

describe('A configuration', () => {
  const s3 = { region: 'eu-central-1', bucket: 'team-files', access_key_id: 'id', secret_access_key: 'key' };
  const webdav = { url: 'http://dav.example.invalid/', username: 'ada', password: 'hush' };

  test.each([
    ['local_directory', {}, ['/config/root_path']],
    ['local_directory', { bucket: 'team-files' }, ['/config/bucket', '/config/root_path']],
    ['s3', {}, ['/config/access_key_id', '/config/bucket', '/config/region', '/config/secret_access_key']],
    ['s3', { ...s3, access_key_id: '' }, ['/config/access_key_id']],
    ['s3', { ...s3, secret_access_key: null }, ['/config/secret_access_key']],
    ['s3', { ...s3, password: 'hush' }, ['/config/password']],
    ['s3', { ...s3, secret_access_key: '********' }, ['/config/secret_access_key']],
    ['s3', { ...s3, bucket: 'Team Files' }, ['/config/bucket']],
    ['s3', { ...s3, region: 'x/../y' }, ['/config/region']],
    ['s3', { ...s3, prefix: '../x' }, ['/config/prefix']],
    ['s3', { ...s3, endpoint: 'ftp://s3.example.invalid' }, ['/config/endpoint']],
    ['s3', { ...s3, endpoint: 'http://user:hush@s3.example.invalid' }, ['/config/endpoint']],
    ['s3', { ...s3, endpoint: 'http://s3.example.invalid/path' }, ['/config/endpoint']],
    ['s3', { ...s3, endpoint: 'http://169.254.169.254' }, ['/config/endpoint']],
    ['s3', { ...s3, endpoint: 'http://[::ffff:169.254.169.254]:80' }, ['/config/endpoint']],
    ['s3', { ...s3, endpoint: 'http://2852039166' }, ['/config/endpoint']],
    ['s3', { ...s3, endpoint: 'http://0251.0376.0251.0376' }, ['/config/endpoint']],
    ['s3', { ...s3, endpoint: 'http://0xa9fea9fe/' }, ['/config/endpoint']],
    ['webdav', {}, ['/config/password', '/config/url', '/config/username']],
    ['webdav', { ...webdav, url: 'http://[fe80::1]/' }, ['/config/url']],
    ['webdav', { ...webdav, url: 'http://dav.example.invalid/?token=hush' }, ['/config/url']],
    ['webdav', { ...webdav, root_path: '/a/../b' }, ['/config/root_path']],
    ['webdav', { ...webdav, root_path: '/über' }, ['/config/root_path']],
    ['webdav', { ...webdav, bucket: 'x', region: 'y' }, ['/config/bucket', '/config/region']],
  ])('of %s that is %j is 400 at %j', async (type, config, pointers) => {
    const answer = await root.post('/api/backends', { name: uniqueName('backend'), type, config });
    expect(pointersOf(answer)).toEqual(pointers);
    expect(answer.bytes.toString()).not.toMatch(/hush|\*\*\*/);
  });

  test('has no unknown key, and nothing beside it but name and type', async () => {
    const body = await newBackend(root);
    expect(pointersOf(await root.post('/api/backends', { ...body, config: { ...body['config'], rot: 1 } }))).toEqual([
      '/config/rot',
    ]);
    expect(pointersOf(await root.post('/api/backends', { ...body, password: 'hush' }))).toEqual(['/password']);
    expect(pointersOf(await root.post('/api/backends', { ...body, type: 'ftp' }))).toContain('/type');
  });
});

describe('PATCH', () => {
  test('changes the name, and needs the version where one is named', async () => {
    const { id } = await makeBackend(root);
    const name = uniqueName('renamed');
    const answer = expectStatus(await patch(id, { name }, { 'if-match': '"1"' }), 200);
    expect(answer.json).toMatchObject({ id, name, version: 2, health: { status: 'healthy' } });
    expect(answer.headers.get('etag')).toBe('"2"');
    expectProblem(await patch(id, { name: uniqueName() }, { 'if-match': '"1"' }), 412, 'precondition_failed');
    expect(expectStatus(await patch(id, { name }), 200).json['version']).toBe(2);
    expect(expectStatus(await patch(id, {}), 200).json['version']).toBe(2);
  });

  test('can’t change the type', async () => {
    const { id } = await makeBackend(root);
    expect(pointersOf(await patch(id, { type: 's3' }))).toEqual(['/type']);
  });

  test('moves an empty backend, which is marked at its new place', async () => {
    const { id } = await makeBackend(root);
    const root_path = await freeFolder(root);
    expect(expectStatus(await patch(id, { config: { root_path } }), 200).json).toMatchObject({
      config: { root_path },
      health: { status: 'healthy' },
    });
    expect(await readFile(join(root_path, markerName), 'utf8')).toContain(id);
  });

  test('moves one that holds content only to where its content is', async () => {
    const backend = await defaultBackend(root);
    await root.putFile(uniqueName(), 'held');
    const root_path = await freeFolder(root);
    expectProblem(await patch(backend['id'], { config: { root_path } }), 409, 'backend_in_use');
    await mkdir(root_path);
    expectProblem(await patch(backend['id'], { config: { root_path } }), 409, 'backend_in_use');
    expect((await defaultBackend(root))['config']).toEqual(backend['config']);
  });
});

describe('Disable, enable and delete', () => {
  test('a disabled one is deleted, and a name that is free again can be taken', async () => {
    const backend = await makeBackend(root);
    const at = `/api/backends/${backend['id']}`;
    expectProblem(await root.delete(at), 409, 'backend_delete_refused');
    expect(expectStatus(await root.post(`${at}/disable`), 200).json).toMatchObject({ state: 'disabled', version: 2 });
    expect(expectStatus(await root.post(`${at}/disable`), 200).json).toMatchObject({ state: 'disabled', version: 2 });
    expect((await read(backend['id']))['deletable']).toEqual({ ok: true, blockers: [] });
    expect(expectStatus(await root.post(`${at}/enable`), 200).json).toMatchObject({ state: 'enabled', version: 3 });
    expectStatus(await root.post(`${at}/disable`), 200);
    expectProblem(await root.delete(at, { 'if-match': '"1"' }), 412, 'precondition_failed');
    expectStatus(await root.delete(at), 204);
    expectProblem(await root.get(at), 404, 'not_found');
    expectStatus(await root.post('/api/backends', { ...(await newBackend(root)), name: backend['name'] }), 201);
  });

  test('the default one is kept by everything that keeps it, all told at once', async () => {
    const { id } = await defaultBackend(root);
    await root.putFile(uniqueName(), 'held');
    const answer = await root.delete(`/api/backends/${id}`);
    expectProblem(answer, 409, 'backend_delete_refused');
    expect(answer.json['blockers']).toEqual([
      { code: 'not_disabled' },
      { code: 'default_backend' },
      { code: 'has_replicas', count: expect.any(Number), bytes: expect.any(Number) },
      { code: 'referenced_by_policy', file_classes: expect.arrayContaining(['default']) },
    ]);
    expect((await read(id))['deletable'].ok).toBe(false);
  });
});

describe('Forgetting replicas', () => {
  test('has to be confirmed, and needs a disabled backend', async () => {
    const { id } = await makeBackend(root);
    const path = `/api/backends/${id}/forget-replicas`;
    expectProblem(await root.post(path, {}), 409, 'confirmation_required');
    expectProblem(await root.post(path, { confirm: false }), 409, 'confirmation_required');
    expectProblem(await root.post(path, { confirm: true }), 409, 'state_conflict');
    expectStatus(await root.post(`/api/backends/${id}/disable`), 200);
    expect(expectStatus(await root.post(path, { confirm: true }), 200).json).toEqual({
      forgotten: 0,
      lost: 0,
      remaining: 0,
    });
  });
});

describe('A check', () => {
  const check = async (id: string): Promise<Json> =>
    expectStatus(await root.post(`/api/backends/${id}/check`), 200).json['health'];

  test('finds a disk that is unmounted, and that it is back', async () => {
    const { id, config } = await makeBackend(root);
    await rename(config.root_path, `${config.root_path}-away`);
    expect(await check(id)).toMatchObject({ status: 'unhealthy', detail: expect.stringMatching(/^marker: .*mounted/) });
    await mkdir(config.root_path);
    expect(await check(id)).toMatchObject({
      status: 'unhealthy',
      detail: expect.stringMatching(/^marker: .*no identity/),
    });
    await rm(config.root_path, { recursive: true });
    await rename(`${config.root_path}-away`, config.root_path);
    expect(await check(id)).toMatchObject({ status: 'healthy', detail: null });
    expect((await read(id))['state']).toBe('enabled');
  });

  test('finds that the folders of two backends were swapped', async () => {
    const [one, two] = [await makeBackend(root), await makeBackend(root)];
    const [a, b] = [one['config'].root_path, two['config'].root_path];
    await rename(a, `${a}-swap`);
    await rename(b, a);
    await rename(`${a}-swap`, b);
    for (const { id } of [one, two] as { id: string }[]) {
      expect(await check(id)).toMatchObject({
        status: 'unhealthy',
        detail: expect.stringMatching(/^marker: .*another/),
      });
    }
  });

  test('leaves nothing behind', async () => {
    const { id, config } = await makeBackend(root);
    await check(id);
    const files = await readdir(config.root_path, { recursive: true, withFileTypes: true });
    expect(files.filter((entry) => entry.isFile()).map(({ name }) => name)).toEqual([markerName]);
  });
});
