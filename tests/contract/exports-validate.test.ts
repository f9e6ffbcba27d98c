import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { request } from 'node:http';
import { gzipSync } from 'node:zlib';
import pg from 'pg';
import { expectStatus, logIn, until } from '@stowage/tests/support/client';
import type { Answer, Client, Json } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { digestOf, readDocument } from '@stowage/tests/support/metadata-document';
import { expectProblem, pointersOf } from '@stowage/tests/support/problems';
import { unknownId } from '@stowage/tests/support/routes';
import { startSystem, uniqueName } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';

const path = '/api/exports/metadata/validate';
const json = { 'content-type': 'application/json' };
let system: System;
let admin: Client;
let database: pg.Pool;
/** An export of now, with two files in a directory, something in the recycle bin, and something purged. */
let exported: string;

beforeAll(async () => {
  system = await startSystem(mode());
  admin = await logIn(system.url);
  database = new pg.Pool({ connectionString: system.databaseUrl, max: 1 });
  database.on('error', () => undefined);
  const directory = (await admin.makeDirectory(uniqueName('smörgås 🧀')))['id'];
  await admin.putFile('one.txt', 'content', { directory });
  await admin.putFile('two.bin', Buffer.alloc(2 ** 20 + 1, 7), { directory });
  await admin.makeDirectory('below', directory);
  const recycled = await admin.putFile(uniqueName('recycled'), 'content');
  expectStatus(await admin.delete(`/api/files/${recycled['id']}`), 200);
  exported = JSON.stringify(await readDocument(admin));
});
afterAll(async () => {
  await database.end();
  await system.close();
});
afterEach(async () => {
  expect(await stagedTables()).toEqual([]);
});

async function stagedTables(): Promise<string[]> {
  const { rows } = await database.query<{ name: string }>(
    `select relname as name from pg_class where relkind = 'r' and relname like 'staged\\_%'`,
  );
  return rows.map(({ name }) => name);
}

function send(body: string | Uint8Array<ArrayBuffer>, headers: Record<string, string> = {}): Promise<Answer> {
  return admin.call('POST', path, { raw: body, headers: { ...json, ...headers } });
}

async function validate(body: string | Uint8Array<ArrayBuffer>, headers: Record<string, string> = {}): Promise<Json> {
  return expectStatus(await send(body, headers), 200).json;
}

/** The export with a change, whose counts and digest are right again. */
function changed(change: (document: Json) => void): string {
  const document: Json = JSON.parse(exported);
  change(document);
  for (const section of Object.keys(document['counts'])) {
    if (Array.isArray(document[section])) document['counts'][section] = document[section].length;
  }
  return JSON.stringify({ ...document, sha256: digestOf(document) });
}

describe('An export', () => {
  test('is valid, plain and compressed, in one member or in some', async () => {
    const document = JSON.parse(exported);
    const expected = {
      valid: true,
      errors: [],
      warnings: [],
      counts: document.counts,
      sha256: document.sha256,
    };
    expect(await validate(exported)).toEqual(expected);
    expect(await validate(gzipSync(exported), { 'content-encoding': 'gzip' })).toEqual(expected);
    const bytes = Buffer.from(exported);
    const members = [bytes.subarray(0, 100), Buffer.alloc(0), bytes.subarray(100)].map((part) => gzipSync(part));
    expect(await validate(Buffer.concat(members), { 'content-encoding': 'GZIP' })).toEqual(expected);
    expect((await readDocument(admin))['sha256']).toBe(document.sha256);
  });

  test('is the same with its keys and sections in another order, and with white space', async () => {
    const document: Json = JSON.parse(exported);
    const reversed = (value: unknown): unknown => {
      if (Array.isArray(value) || typeof value !== 'object' || value === null) return value;
      return Object.fromEntries(Object.entries(value).reverse());
    };
    const inside = Object.entries(document).map(([key, value]) => [
      key,
      Array.isArray(value) ? value.map(reversed) : value,
    ]);
    const answer = await validate(`\ufeff${JSON.stringify(Object.fromEntries(inside.reverse()), null, 3)}\n`);
    expect(answer).toMatchObject({ valid: true, errors: [], sha256: document['sha256'] });
  });

  test('of another installation is told so', async () => {
    const { valid, warnings } = await validate(
      changed((document) => (document['instance_id'] = '2f6b5c1e-7a43-4d6b-9c0e-1a2b3c4d5e6f')),
    );
    expect({ valid, warnings }).toEqual({
      valid: true,
      warnings: [{ pointer: '/instance_id', code: 'other_installation', detail: expect.stringMatching(/\.$/) }],
    });
  });

  test('is looked at while the service is read-only', async () => {
    expectStatus(await admin.call('PUT', '/api/system/mode', { body: { mode: 'read_only' } }), 200);
    expect(await validate(exported)).toMatchObject({ valid: true });
    expectStatus(await admin.call('PUT', '/api/system/mode', { body: { mode: 'normal' } }), 200);
  });
});

const faults: readonly (readonly [code: string, pointer: string, change: (document: Json) => void])[] = [
  ['unknown_field', '/colour', (document) => (document['colour'] = 'blue')],
  ['unknown_field', '/files/1/colour', ({ files }) => (files[1].colour = 'blue')],
  ['missing', '/blobs/0/sha256', ({ blobs }) => delete blobs[0].sha256],
  ['wrong_type', '/files/0/size', ({ files }) => (files[0].size = '7')],
  ['out_of_range', '/files/0/size', ({ files }) => (files[0].size = -1)],
  ['out_of_range', '/files/0/version', ({ files }) => (files[0].version = 2 ** 53)],
  ['wrong_type', '/files/0', ({ files }) => (files[0] = null)],
  ['unordered', '/files/2', ({ files }) => files.reverse()],
  ['duplicate_id', '/files/1', ({ files }) => files.unshift(files[0])],
  ['unknown_parent', '/files/0/parent_id', ({ files }) => (files[0].parent_id = unknownId)],
  ['unknown_parent', '/files/0/parent_id', ({ files }) => (files[0].parent_id = files[1].id)],
  ['parent_missing', '/files/0/parent_id', ({ files }) => (files[0].parent_id = null)],
  ['unknown_blob', '/files/0/blob_id', ({ files }) => (files[0].blob_id = unknownId)],
  ['size_mismatch', '/files/0/size', ({ files }) => (files[0].size += 1)],
  ['name_conflict', '/files/1/name', ({ files }) => (files[1].name = files[0].name)],
  ['name_not_nfc', '/files/0/name', ({ files }) => (files[0].name = 'o\u0308')],
  ['name_invalid', '/files/0/name', ({ files }) => (files[0].name = 'a/b')],
  ['bin_invalid', '/files/0/purge_at', ({ files }) => (files[0].purge_at = files[0].created_at)],
  ['invalid', '/files/0/created_at', ({ files }) => (files[0].created_at = '2026-02-30T00:00:00.000Z')],
  ['cycle', '/directories/1/parent_id', ({ directories }) => (directories[1].parent_id = directories[2].id)],
  ['root_missing', '/directories', ({ directories }) => directories.shift()],
  ['root_invalid', '/directories/0', ({ directories }) => (directories[0].name = 'root')],
  ['chunks_mismatch', '/blobs/0/chunk_crc32c', ({ blobs }) => (blobs[0].chunk_crc32c = '')],
  ['invalid', '/blobs/0/sha256', ({ blobs }) => (blobs[0].sha256 = null)],
  ['key_invalid', '/replicas/0/key', ({ replicas }) => (replicas[0].key = '../../etc/passwd')],
  ['default_backend', '/backends', ({ backends }) => (backends.length = 0)],
  ['config_invalid', '/backends/0/config/password', ({ backends }) => (backends[0].config.password = 'secret')],
  ['config_invalid', '/backends/0/config/root_path', ({ backends }) => (backends[0].config.root_path = '../data')],
  ['unknown_backend', '/policies/0/backends/0', ({ policies }) => (policies[0].backends = [unknownId])],
  ['out_of_range', '/policies/0/replicas', ({ policies }) => (policies[0].replicas = 2)],
  ['default_policy', '/policies', ({ policies }) => (policies[0].file_class = 'others')],
];

describe('A document that can not be imported is told so, with the place:', () => {
  test.each(faults)('%s at %s', async (code, pointer, change) => {
    const { valid, errors } = await validate(changed(change));
    expect(valid).toBe(false);
    expect(errors).toContainEqual({ code, pointer, detail: expect.stringMatching(/^[A-Z].+\.$/) });
  });

  const told = async (document: string): Promise<unknown[]> =>
    (await validate(document))['errors'].map(({ code, pointer }: Json) => [code, pointer]);
  const withField = (name: string, value: unknown): string =>
    JSON.stringify({ ...JSON.parse(exported), [name]: value });

  test('what it says of itself is wrong', async () => {
    expect(await told(withField('sha256', '0'.repeat(64)))).toEqual([['digest_mismatch', '/sha256']]);
    const counts = { ...JSON.parse(exported).counts, files: 17 };
    expect(await told(withField('counts', counts))).toEqual([['count_mismatch', '/counts/files']]);
    expect(await told(withField('format', 'tar'))).toEqual([['wrong_format', '/format']]);
    expect(await told(withField('format_version', 0))).toEqual([['format_too_old', '/format_version']]);
    expect(await told(withField('exported_at', 'today'))).toEqual([['wrong_type', '/exported_at']]);
    expect(await told(withField('replicas', undefined))).toEqual(
      expect.arrayContaining([
        ['missing', '/replicas'],
        ['digest_mismatch', '/sha256'],
        ['count_mismatch', '/counts/replicas'],
      ]),
    );
    expect(await told(withField('files', {}))).toContainEqual(['wrong_type', '/files']);
  });

  test('one of a newer version is told so, and nothing else', async () => {
    const newer = withField('format_version', 2).replace('"files":', '"pictures":[{}],"files":');
    expect(await validate(newer)).toMatchObject({
      valid: false,
      errors: [
        { code: 'format_too_new', pointer: '/format_version', detail: expect.stringContaining('newer version') },
      ],
    });
  });

  test('a key that is there twice, in the document and in a record', async () => {
    expect(await told(exported.replace('"files":', '"files":[],"files":'))).toContainEqual(['duplicate_key', '/files']);
    expect(await told(exported.replace('{', '{"format":"stowage-metadata",'))).toEqual([['duplicate_key', '/format']]);
    const name = JSON.stringify(JSON.parse(exported).files[0].name);
    const twice = exported.replace(`"name":${name}`, `"name":"other","name":${name}`);
    expect(await told(twice)).toEqual([['duplicate_key', '/files/0/name']]);
    expect(await told(exported.replace(`"name":${name}`, `"__proto__":{"a":1},"name":${name}`))).toContainEqual([
      'unknown_field',
      '/files/0/__proto__',
    ]);
  });

  test('one that is cut short, at the place where it is, and without a digest', async () => {
    const cut = exported.slice(0, exported.indexOf('"blobs":[') + 20);
    expect(await validate(cut)).toMatchObject({
      valid: false,
      sha256: null,
      errors: [{ code: 'truncated', pointer: '/blobs/0' }],
    });
    const packed = gzipSync(exported);
    const { errors } = await validate(packed.subarray(0, packed.length / 2), { 'content-encoding': 'gzip' });
    expect(errors).toContainEqual(expect.objectContaining({ code: 'truncated' }));
    expect(await told(`${exported} ${exported}`)).toEqual([['trailing_bytes', '']]);
  });
});

describe('A body that is no document', () => {
  test.each([
    ['', ''],
    ['null', ''],
    ['[]', ''],
    ['hello', ''],
    ['{"format":tru}', '/format'],
    ['{"files":[{"id":1},{"id":tru}]}', '/files/1'],
    ['{"files":[{]}', '/files/0'],
  ])('%s is refused at %s', async (body, pointer) => {
    expect(pointersOf(expectProblem(await send(body), 400, 'validation_failed'))).toEqual([pointer]);
  });

  test('is refused where it is not UTF-8, or not the gzip that it is said to be', async () => {
    const broken = Buffer.from('{"files":[{"name":"ö"}]}', 'latin1');
    expect(pointersOf(expectProblem(await send(broken), 400, 'validation_failed'))).toEqual(['/files/0']);
    const gzip = { 'content-encoding': 'gzip' };
    expectProblem(await send(exported, gzip), 400, 'validation_failed');
    const flipped = gzipSync(exported);
    flipped[flipped.length - 6] = 0xff ^ (flipped[flipped.length - 6] ?? 0);
    expectProblem(await send(flipped, gzip), 400, 'validation_failed');
    expectProblem(await send(Buffer.concat([gzipSync(exported), Buffer.from('more')]), gzip), 400, 'validation_failed');
  });

  test('is refused in another coding or of another type', async () => {
    for (const coding of ['br', 'deflate', 'gzip, gzip', 'zstd']) {
      expectProblem(await send(exported, { 'content-encoding': coding }), 415, 'unsupported_media_type');
    }
    for (const type of [
      'application/zip',
      'application/x-tar',
      'text/plain',
      'application/gzip',
      'multipart/form-data',
    ]) {
      expectProblem(await send('PK\u0003\u0004', { 'content-type': type }), 415, 'unsupported_media_type');
    }
  });
});

/** Begins to send a document, and gives its request once some of it is staged. */
async function begun(): Promise<ReturnType<typeof request>> {
  const headers = { ...json, authorization: `Bearer ${admin.token}` };
  const call = request(`${system.url}${path}`, { method: 'POST', headers });
  call.on('error', () => undefined);
  call.write(exported.slice(0, exported.indexOf('"blobs":[') + 20));
  await until(async () => (await stagedTables()).length > 0);
  return call;
}

describe('What was read of a document is gone', () => {
  test('when its client goes away in the middle', async () => {
    const call = await begun();
    call.destroy();
    await until(async () => (await stagedTables()).length === 0);
  });

  test('after the service was killed in the middle, once it is there again', async () => {
    const call = await begun();
    const broken = new Promise((resolve) => call.once('close', resolve));
    await system.kill();
    await broken;
    expect(await stagedTables()).not.toEqual([]);
    await system.restart();
    await until(async () => (await stagedTables()).length === 0);
  });
});
