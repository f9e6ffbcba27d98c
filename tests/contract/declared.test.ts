import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import pg from 'pg';
import { expectStatus, logIn, until, uploadMetadata } from '@stowage/tests/support/client';
import type { Client, Json } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { expectProblem } from '@stowage/tests/support/problems';
import { runApply } from '@stowage/tests/support/run-apply';
import { adminPassword, startSystem, uniqueName } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';

let system: System;
let root: Client;

beforeAll(async () => {
  system = await startSystem(mode(), { STOWAGE_DEFAULT_BACKEND: 'none' });
  root = await logIn(system.url);
});
afterAll(() => system.close());

const folder = (name: string): string => join(system.dataDir, 'backends', name);
const local = (name: string, more: Json = {}): Json => ({
  name,
  type: 'local_directory',
  config: { root_path: folder(name) },
  ...more,
});

async function backend(name: string): Promise<Json> {
  const { json } = expectStatus(await root.get('/api/backends?limit=1000'), 200);
  return json['items'].find((item: Json) => item['name'] === name);
}

/** Every row that a second run must leave as it is. */
async function everything(): Promise<unknown> {
  const database = new pg.Client({ connectionString: system.databaseUrl });
  await database.connect();
  const { rows } = await database.query(`
    select array(select row(id, name, version, secrets_version)::text from registry.backends order by id) as backends,
      array(select row(file_class, version)::text from placement.policies order by 1) as policies,
      array(select id from jobs.jobs where params ->> 'reason' is not null order by id) as jobs`);
  await database.end();
  return rows[0];
}

describe('An installation that is to make no backend by itself', () => {
  test('is ready, holds directories, and tells of uploads that there is no place for them', async () => {
    expectStatus(await root.get('/api/system/ready'), 200);
    expect(expectStatus(await root.get('/api/backends'), 200).json['items']).toEqual([]);
    expect(expectStatus(await root.get('/api/policies/placement'), 200).json['items']).toEqual([]);
    await root.makeDirectory(uniqueName());
    const headers = { 'upload-length': '1', 'upload-metadata': uploadMetadata({ filename: uniqueName() }) };
    const refused = await root.tus('POST', '/files', headers);
    expectProblem(refused, 503, 'unavailable');
    expect(refused.json['detail']).toMatch(/no default backend yet/);
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
    expectStatus(await root.post('/api/jobs/enqueue-full-reconcile'), 202);
  });

  test('takes none that uploads can not grow on for the default one', async () => {
    const config = { url: 'http://127.0.0.1:9/', username: 'ada', password: 'unimportant' };
    const body = { name: uniqueName('dav'), type: 'webdav', config, is_default: true };
    expectProblem(await root.post('/api/backends', body), 400, 'validation_failed');
  });

  test('works as soon as a declared backend is the default one, and has its first policy', async () => {
    const applied = await runApply(system.url, { backends: [local('first', { default: true })] });
    expect(applied).toEqual({
      code: 0,
      lines: [
        expect.stringMatching(/^backend "first" made, as [-0-9a-f]{36}, the default one; it is healthy$/),
        '1 changed, 0 as declared already, 0 refused',
      ],
    });
    const first = await backend('first');
    expect(first).toMatchObject({ is_default: true, state: 'enabled' });
    const policy = await until(async () => {
      const answer = await root.get('/api/policies/placement/default');
      return answer.status === 200 ? answer.json : null;
    });
    expect(policy).toMatchObject({ backends: [first['id']], replicas: 1 });
    await root.putFile(uniqueName(), 'content');
  });

  test('has its whole state in an export that can be imported', async () => {
    const { bytes } = expectStatus(await root.get('/api/exports/metadata'), 200);
    const raw = new Uint8Array(bytes);
    const headers = { 'content-type': 'application/json' };
    const { json } = expectStatus(await root.call('POST', '/api/exports/metadata/validate', { raw, headers }), 200);
    expect(json).toMatchObject({ valid: true, errors: [] });
    expect(expectStatus(await root.get('/api/exports/metadata/integrity'), 200).json['problems']).toEqual([]);
  });
});

describe('What is declared', () => {
  const declared = (): Json => ({
    backends: [local('second', { state: 'enabled' }), local('third', { state: 'disabled' })],
    policies: [
      { file_class: 'default', backends: ['first', 'second'], replicas: 2 },
      { file_class: 'video', backends: ['second'], replicas: 1, sync_replicas: 1 },
    ],
  });

  test('is made, and a second run writes nothing', async () => {
    const { code, lines } = await runApply(system.url, declared());
    expect(lines).toEqual([
      expect.stringMatching(/^backend "second" made/),
      expect.stringMatching(/^backend "third" made/),
      'backend "third" disabled',
      'policy "default" changed: 2 of first, second',
      'policy "video" made: 1 of second',
      '4 changed, 0 as declared already, 0 refused',
    ]);
    expect(code).toBe(0);
    const before = await everything();
    expect(await runApply(system.url, declared())).toEqual({
      code: 0,
      lines: ['0 changed, 4 as declared already, 0 refused'],
    });
    expect(await everything()).toEqual(before);
  });

  test('is made so again where someone changed it, and what is not declared is left alone', async () => {
    const other = expectStatus(await root.post('/api/backends', local(uniqueName('other'))), 201).json;
    const third = await backend('third');
    expectStatus(await root.post(`/api/backends/${third['id']}/enable`), 200);
    const policy = { backends: [other['id']], replicas: 1 };
    expectStatus(await root.call('PUT', '/api/policies/placement/audio', { body: policy }), 200);
    expectStatus(await root.call('PUT', '/api/policies/placement/video', { body: policy }), 200);
    expect((await runApply(system.url, declared())).lines).toEqual([
      'backend "third" disabled',
      'policy "video" changed: 1 of second',
      '2 changed, 2 as declared already, 0 refused',
    ]);
    expect(await backend(other['name'])).toEqual(other);
    expect(expectStatus(await root.get('/api/policies/placement/audio'), 200).json['backends']).toEqual([other['id']]);
  });

  test('may name another default backend, which the one before is not any longer', async () => {
    const yaml = `
backends:
  - name: second
    type: local_directory
    default: true # in the place of first
    config:
      root_path: ${folder('second')}
`;
    expect((await runApply(system.url, yaml)).lines[0]).toMatch(/^backend "second" changed: is_default; it is healthy/);
    expect([(await backend('first'))['is_default'], (await backend('second'))['is_default']]).toEqual([false, true]);
    const { id } = await backend('second');
    expectProblem(
      await root.call('PATCH', `/api/backends/${id}`, { body: { is_default: false } }),
      409,
      'state_conflict',
    );
  });

  test('and refused is told of with its reasons, all else is done, and the end is a failure', async () => {
    const secret = 'canary of a secret';
    const { code, lines } = await runApply(system.url, {
      backends: [
        local('first', { config: { root_path: folder('elsewhere') } }),
        { name: 'second', type: 'webdav', config: { url: 'http://127.0.0.1:9/', username: 'ada', password: secret } },
        { name: 'odd', type: 's3', config: { bucket: 'team-files', access_key_id: secret, secret_access_key: '•••' } },
        local('fourth'),
      ],
      policies: [
        { file_class: 'image', backends: ['nobody'], replicas: 1 },
        { file_class: 'archive', backends: ['first'], replicas: 2 },
        { file_class: 'document', backends: ['fourth'], replicas: 1 },
      ],
    });
    expect(code).toBe(1);
    expect(lines).toEqual([
      expect.stringMatching(/^backend "first" was refused: 409 backend_in_use; .*marker.*; count: \d+; request /),
      expect.stringMatching(/^backend "second" was refused: it has the type local_directory, which can't change/),
      expect.stringMatching(/^backend "odd" was refused: 400 validation_failed; .*\/config\/region is needed/),
      expect.stringMatching(/^backend "fourth" made/),
      'policy "image" was refused: there is no backend named "nobody"',
      expect.stringMatching(/^policy "archive" was refused: 400 validation_failed; .*\/replicas must be/),
      'policy "document" made: 1 of fourth',
      '2 changed, 0 as declared already, 5 refused',
    ]);
    expect(lines.join('\n')).not.toContain(secret);
  });

  test.each([
    ['backends: [{name: a, typ: s3}]', /backends\[0\]\.typ: is not known here/],
    ['backends: [{name: a, type: ftp, config: {}}]', /backends\[0\]\.type: must be one of local_directory, s3, webdav/],
    ['policies: [{file_class: a, backends: b, replicas: 0}]', /policies\[0\]\.backends: must be a list/],
    ['backends: {', /is no YAML at character/],
    ['backends: *canary-of-a-secret', /has an alias .* that stands for nothing/],
    ['backends: !canary-of-a-secret []', /is no YAML at character/],
    ['[]', /the file: must be an object/],
    ['backends: [{name: a, type: s3, config: {}}, {name: a, type: s3, config: {}}]', /\[1\]\.name: is declared twice/],
  ])('as %s is refused before anything is done', async (text, wanted) => {
    const before = await everything();
    const { code, lines } = await runApply(system.url, text);
    expect([code, lines.join('\n')]).toEqual([1, expect.stringMatching(wanted)]);
    expect(await everything()).toEqual(before);
  });
});

describe('The command', () => {
  test('leaves no session, and says of a wrong password that it is wrong', async () => {
    const sessions = async (): Promise<number> => {
      const database = new pg.Client({ connectionString: system.databaseUrl });
      await database.connect();
      const { rowCount } = await database.query('select from identity.sessions');
      await database.end();
      return rowCount ?? 0;
    };
    const before = await sessions();
    expect((await runApply(system.url, {})).code).toBe(0);
    expect(await sessions()).toBe(before);
    const { code, lines } = await runApply(system.url, {}, { STOWAGE_ADMIN_PASSWORD: `not ${adminPassword}` });
    expect([code, lines]).toEqual([1, [expect.stringMatching(/^401 invalid_credentials; /)]]);
  });

  test('waits for an API that is not ready yet, for as long as it may', async () => {
    let asked = 0;
    const server = createServer((_request, response) => {
      asked += 1;
      response.writeHead(503, { 'retry-after': '1', 'content-type': 'application/problem+json' });
      response.end(JSON.stringify({ code: 'unavailable', detail: 'Not yet.' }));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    const late = await runApply(`http://127.0.0.1:${port}`, {}, { STOWAGE_APPLY_LIMIT: '1500ms' });
    server.close();
    expect(late).toEqual({ code: 1, lines: ['GET /api/system/ready: 503 unavailable; Not yet.'] });
    expect(asked).toBe(2);
  });
});
