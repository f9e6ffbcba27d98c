import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import pg from 'pg';
import { gzipSync } from 'node:zlib';
import { defaultBackend, makeBackend, newBackend } from '@stowage/tests/support/backends';
import { expectStatus, logIn, logInAs, sha256, until, uploadMetadata } from '@stowage/tests/support/client';
import type { Answer, Client, Json } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { documentDigest, sections } from '@stowage/tests/support/documents';
import { startOwnSystem } from '@stowage/tests/support/own-system';
import type { OwnSystem } from '@stowage/tests/support/own-system';
import { expectProblem } from '@stowage/tests/support/problems';
import { uniqueName } from '@stowage/tests/support/system';
import { makeUpload } from '@stowage/tests/support/uploads';

const path = '/api/exports/metadata';
const zipped = { 'content-type': 'application/json', 'content-encoding': 'gzip' };

let system: OwnSystem;
let admin: Client;
let database: pg.Client;

beforeAll(async () => {
  system = await startOwnSystem(mode());
  admin = await logIn(system.url);
  database = new pg.Client(system.databaseUrl);
  database.on('error', () => undefined);
  await database.connect();
});
afterAll(async () => {
  await database.end();
  await system.close();
});

async function exported(id?: string): Promise<Json> {
  return expectStatus(await admin.get(id === undefined ? path : `${path}?id=${id}`), 200).json;
}

async function planned(document: Json, client = admin): Promise<Json> {
  const { json } = expectStatus(await client.post(`${path}/restore-plan`, document), 200);
  expect(json['blockers']).toEqual([]);
  return json;
}

function importing(body: Json, query = '', client = admin): Promise<Answer> {
  return client.post(`${path}/import${query}`, body);
}

/** Plans and imports a document; gives what the import answers. */
async function restore(document: Json): Promise<Json> {
  const { validation_token: token } = await planned(document);
  return expectStatus(await importing({ confirm_replace: true, validation_token: token }), 200).json;
}

/** A document with its digest and counts made right again. */
function sealed(document: Json): Json {
  const counts = Object.fromEntries(sections.map((name) => [name, document[name].length]));
  const whole = { ...document, counts };
  return { ...whole, sha256: documentDigest(whole) };
}

/** What an import has to bring back as it was: not whether replicas were read, nor what a backend's row went through. */
function lasting(document: Json): Json {
  return {
    directories: document['directories'],
    files: document['files'],
    blobs: document['blobs'],
    policies: document['policies'],
    replicas: document['replicas'].map(({ state: _state, verified_at: _verified, ...replica }: Json) => replica),
    backends: document['backends'].map(({ id, name, type, config, is_default: isDefault, created_at: at }: Json) => {
      return { id, name, type, config, isDefault, at };
    }),
  };
}

async function download(id: string): Promise<string> {
  return expectStatus(await admin.get(`/api/files/${id}/download`), 200).bytes.toString();
}

interface Made {
  directory: Json;
  files: Json[];
}

async function makeFiles(count = 2): Promise<Made> {
  const directory = await admin.makeDirectory(uniqueName('directory'));
  const files = [];
  for (let i = 0; i < count; i += 1)
    files.push(await admin.putFile(`file ${i}`, `content ${i}`, { directory: directory['id'] }));
  return { directory, files };
}

async function idOfFirst(made: Made): Promise<string> {
  return made.files[0]?.['id'];
}

test('what was changed in every way comes back as it was, and an import is undone by another one', async () => {
  const { directory, files } = await makeFiles(4);
  const [one, other, gone, moved] = files.map(({ id }) => id);
  const binned = await admin.putFile('in the bin', 'binned', { directory: directory['id'] });
  expectStatus(await admin.delete(`/api/files/${binned['id']}`), 200);
  const inner = await admin.makeDirectory('inner', directory['id']);
  const before = await exported();

  const rename = (id: string, name: string): Promise<Answer> => admin.post(`/api/files/${id}/rename`, { name });
  expectStatus(await rename(one, 'on the way'), 200);
  expectStatus(await rename(other, 'file 0'), 200);
  expectStatus(await rename(one, 'file 1'), 200);
  expectStatus(await admin.delete(`/api/files/${gone}`), 200);
  expectStatus(await admin.delete(`/api/files/${gone}?permanent=true`), 204);
  expectStatus(await admin.post(`/api/files/${moved}/move`, { directory_id: 'root', name: uniqueName('moved') }), 200);
  expectStatus(await admin.post(`/api/files/${binned['id']}/restore`), 200);
  expectStatus(await admin.post(`/api/directories/${inner['id']}/move`, { parent_id: 'root' }), 200);
  expectStatus(await admin.post(`/api/directories/${directory['id']}/move`, { parent_id: inner['id'] }), 200);
  const later = await admin.putFile('later', 'later', { directory: directory['id'] });
  const backend = await makeBackend(admin);
  const wish = { backends: [backend['id'], (await defaultBackend(admin))['id']], replicas: 1 };
  expectStatus(await admin.call('PUT', '/api/policies/placement/video', { body: wish }), 200);
  const after = await exported();

  const done = await restore(before);
  expect(done).toEqual({
    imported: before['counts'],
    job: expect.objectContaining({ kind: 'full_reconcile', params: { reason: 'import' } }),
    previous_export_id: expect.any(String),
  });
  const now = await exported();
  expect(lasting(now)).toEqual(lasting(before));
  for (const replica of now['replicas']) expect(replica).toMatchObject({ verified_at: null });
  for (const [i, { id }] of files.entries()) expect(await download(id)).toBe(`content ${i}`);
  expectProblem(await admin.get(`/api/files/${later['id']}`), 404, 'not_found');
  expectProblem(await admin.get(`/api/backends/${backend['id']}`), 404, 'not_found');
  expectProblem(await admin.get('/api/policies/placement/video'), 404, 'not_found');
  // The content of what came later may have been found on its backend by now, and is of no file.
  const { problems } = (await admin.get(`${path}/integrity`)).json;
  expect(problems.filter(({ kind }: Json) => kind !== 'unknown_object')).toEqual([]);
  // All that writes works at once.
  expect(await download((await admin.putFile(uniqueName('new'), 'new'))['id'])).toBe('new');

  await restore(await exported(done['previous_export_id']));
  expect(lasting(await exported())).toEqual(lasting(after));
  expect(await download(later['id'])).toBe('later');
  expect((await admin.get(`/api/backends/${backend['id']}`)).json).toMatchObject({
    state: 'disabled',
    health: { status: 'unknown' },
  });
});

test('the document may be sent again, in any order and compressed, and must be the one of the plan', async () => {
  const { directory } = await makeFiles();
  const document = await exported();
  const name = uniqueName('renamed');
  expectStatus(await admin.post(`/api/directories/${directory['id']}/rename`, { name }), 200);
  const { validation_token: token } = await planned(document);
  const other = sealed({ ...document, directories: document['directories'].slice(0, -1) });
  const ask = { validation_token: token, confirm_replace: true };
  expectProblem(await importing({ ...ask, document: other }), 409, 'plan_stale');
  expectProblem(await importing({ ...ask, document: 'none' }), 400, 'validation_failed');
  const body = gzipSync(JSON.stringify({ document, ...ask }));
  expectStatus(await admin.call('POST', `${path}/import`, { raw: body, headers: zipped }), 200);
  expect((await admin.get(`/api/directories/${directory['id']}`)).json['name']).toBe(directory['name']);
});

describe('a confirmation', () => {
  let token: string;
  let document: Json;
  beforeAll(async () => {
    document = await exported();
    ({ validation_token: token } = await planned(document));
  });

  test.each<[string, object, string, number, string]>([
    ['missing', {}, '', 409, 'confirmation_required'],
    ['false', { confirm_replace: false }, '', 409, 'confirmation_required'],
    ['false in the address', { confirm_replace: true }, '?confirm_replace=false', 409, 'confirmation_required'],
    ['false in the body', { confirm_replace: false }, '?confirm_replace=true', 409, 'confirmation_required'],
    ['no boolean', { confirm_replace: 'true' }, '', 400, 'validation_failed'],
    ['no boolean in the address', {}, '?confirm_replace=yes', 400, 'validation_failed'],
    ['with a field that there is not', { confirm_replace: true, replace: true }, '', 400, 'validation_failed'],
    ['with another token', { confirm_replace: true, validation_token: 'x' }, '', 409, 'plan_stale'],
    ['with a token that is none', { confirm_replace: true, validation_token: 1 }, '', 400, 'validation_failed'],
  ])('that is %s is refused, and spends nothing', async (_what, body, query, status, code) => {
    expectProblem(await importing({ validation_token: token, ...body }, query), status, code);
  });

  test('without a token or a body is refused', async () => {
    expectProblem(await importing({ confirm_replace: true }), 400, 'validation_failed');
    expectProblem(await admin.call('POST', `${path}/import`), 409, 'confirmation_required');
    expectProblem(await admin.call('POST', `${path}/import?confirm_replace=true`), 400, 'validation_failed');
  });

  test('of another admin is refused', async () => {
    const second = await logInAs(admin, 'admin', uniqueName('second'));
    expectProblem(await importing({ confirm_replace: true, validation_token: token }, '', second), 409, 'plan_stale');
  });

  test('in another coding or media type is refused', async () => {
    const send = (headers: Record<string, string>): Promise<Answer> =>
      admin.call('POST', `${path}/import`, { raw: '{}', headers });
    expectProblem(await send({ 'content-type': 'text/plain' }), 415, 'unsupported_media_type');
    expectProblem(
      await send({ 'content-type': 'application/json', 'content-encoding': 'br' }),
      415,
      'unsupported_media_type',
    );
  });

  test('in the address is as good as in the body; the token is good once', async () => {
    expectStatus(await importing({ validation_token: token }, '?confirm_replace=true'), 200);
    expectProblem(await importing({ validation_token: token }, '?confirm_replace=true'), 409, 'plan_stale');
  });
});

test('of two imports at once one wins', async () => {
  await makeFiles();
  const document = await exported();
  const { validation_token: token } = await planned(document);
  const answers = await Promise.all(
    [token, token].map((validationToken) => importing({ confirm_replace: true, validation_token: validationToken })),
  );
  expect(answers.map(({ status }) => status).sort()).toEqual([200, 409]);
});

test('a plan does not outlive a change', async () => {
  await makeFiles();
  const { validation_token: token } = await planned(await exported());
  await admin.putFile(uniqueName('meanwhile'), 'new');
  expectProblem(await importing({ confirm_replace: true, validation_token: token }), 409, 'plan_stale');
});

test('plan and import go on while the service is read-only', async () => {
  const made = await makeFiles();
  const document = await exported();
  expectStatus(await admin.delete(`/api/files/${await idOfFirst(made)}`), 200);
  expectStatus(await admin.call('PUT', '/api/system/mode', { body: { mode: 'read_only' } }), 200);
  try {
    expect(await restore(document)).toMatchObject({ imported: document['counts'] });
    expectProblem(await admin.post('/api/directories', { name: uniqueName('no') }), 503, 'unavailable');
  } finally {
    expectStatus(await admin.call('PUT', '/api/system/mode', { body: { mode: 'normal' } }), 200);
  }
  expect(await download(await idOfFirst(made))).toBe('content 0');
});

test('uploads into what is gone end, others go on', async () => {
  const { directory } = await makeFiles();
  const document = await exported();
  const gone = await admin.makeDirectory(uniqueName('gone'));
  const start = (directoryId: string): Promise<{ id: string }> =>
    makeUpload(admin, {
      length: 3,
      metadata: { filename: uniqueName('upload'), directory_id: directoryId },
      body: Buffer.from('abc'),
    });
  const [lost, kept] = [await start(gone['id']), await start(directory['id'])];
  await restore(document);
  expectProblem(await admin.get(`/api/uploads/${lost.id}`), 410, 'gone');
  expectProblem(await admin.post(`/api/uploads/${lost.id}/finalize`), 410, 'gone');
  const { json } = expectStatus(await admin.post(`/api/uploads/${kept.id}/finalize`), 201);
  expect(await download(json['id'])).toBe('abc');
});

test('nothing is removed from backends after an import, and an admin is told so', async () => {
  const { files } = await makeFiles();
  await restore(await exported());
  const [file] = files;
  expectStatus(await admin.delete(`/api/files/${file?.['id']}`), 200);
  expectStatus(await admin.delete(`/api/files/${file?.['id']}?permanent=true`), 204);
  const { rows } = await database.query(
    `update jobs.jobs set run_after = now() where kind = 'remove_blob' and state = 'pending' returning id`,
  );
  expect(rows.length).toBeGreaterThan(0);
  await database.query(`update catalog.blobs set delete_after = now() where delete_after is not null`);
  expectStatus(await admin.post('/api/jobs/run-pending', { kinds: ['remove_blob'], wait_seconds: 3 }), 200);
  const states = await database.query(`select distinct state from jobs.jobs where id = any($1)`, [
    rows.map(({ id }) => id),
  ]);
  expect(states.rows).toEqual([{ state: 'pending' }]);
});

describe('a crafted document', () => {
  test('brings no users, no secrets, and sends no secret that is known elsewhere', async () => {
    const users = `select * from identity.users order by id`;
    const id = await s3Backend();
    const document = await exported();
    const before = (await database.query(users)).rows;
    const crafted = sealed({
      ...document,
      backends: document['backends'].map((backend: Json) =>
        backend['id'] === id
          ? { ...backend, enabled: true, config: { ...backend['config'], endpoint: 'https://evil.example.org' } }
          : backend,
      ),
    });
    expectProblem(await admin.post(`${path}/restore-plan`, { ...document, users: [] }), 422, 'unprocessable');
    const plan = await planned(crafted);
    expect(plan['backends']).toContainEqual(
      expect.objectContaining({ id, missing_secret_fields: ['access_key_id', 'secret_access_key'] }),
    );
    const { validation_token: token } = plan;
    expectStatus(await importing({ confirm_replace: true, validation_token: token }), 200);
    expect((await admin.get(`/api/backends/${id}`)).json).toMatchObject({
      state: 'disabled',
      secret_fields: [],
      health: { status: 'unknown' },
    });
    expect((await database.query(users)).rows).toEqual(before);
    // Back at the place that is known from before, the secrets are still gone.
    await restore(document);
    expect((await admin.get(`/api/backends/${id}`)).json).toMatchObject({ state: 'disabled', secret_fields: [] });
  });

  test('that names the same place leaves the secrets', async () => {
    const id = await s3Backend();
    const document = await exported();
    expectStatus(await admin.call('PATCH', `/api/backends/${id}`, { body: { name: uniqueName('other') } }), 200);
    await restore(document);
    const { json } = await admin.get(`/api/backends/${id}`);
    expect(json).toMatchObject({ state: 'enabled', secret_fields: ['access_key_id', 'secret_access_key'] });
    expect(document['backends'].find((backend: Json) => backend['id'] === id)['name']).toBe(json['name']);
  });

  async function s3Backend(): Promise<string> {
    const config = {
      endpoint: 'http://127.0.0.1:9',
      region: 'eu-central-1',
      bucket: uniqueName('bucket')
        .toLowerCase()
        .replaceAll(/[^a-z0-9-]/g, ''),
      access_key_id: 'known',
      secret_access_key: 'very secret',
    };
    const body = { name: uniqueName('s3'), type: 's3', config };
    return expectStatus(await admin.post('/api/backends', body), 201).json['id'];
  }
});

test('a backend that was moved meanwhile is at once where the document has it', async () => {
  const backend = await makeBackend(admin);
  const document = await exported();
  const { config } = await newBackend(admin);
  expectStatus(await admin.call('PATCH', `/api/backends/${backend['id']}`, { body: { config } }), 200);
  await restore(document);
  const enabled = expectStatus(await admin.post(`/api/backends/${backend['id']}/enable`), 200).json;
  expect(enabled).toMatchObject({ config: backend['config'], state: 'enabled', health: { status: 'healthy' } });
});

test('the full reconcile that follows reads what was imported', async () => {
  const { files } = await makeFiles();
  const { job } = await restore(await exported());
  await until(async () => (await admin.get(`/api/jobs/${job.id}`)).json['state'] === 'succeeded', 60_000);
  const { json } = await admin.get(`/api/files/${files[0]?.['id']}`);
  expect(json['placement']).toMatchObject({ state: 'satisfied', replicas: [{ state: 'available' }] });
  expect(json['sha256']).toBe(sha256('content 0'));
});

test('an upload of before the import that is finalized later makes its file', async () => {
  const document = await exported();
  const metadata = uploadMetadata({ filename: uniqueName('late') });
  const made = expectStatus(
    await admin.tus('POST', '/files', { 'upload-length': '4', 'upload-metadata': metadata }, Buffer.from('late')),
    201,
  );
  await restore(document);
  const id = made.headers.get('location')?.split('/').at(-1);
  expect(await download(expectStatus(await admin.post(`/api/uploads/${id}/finalize`), 201).json['id'])).toBe('late');
});
