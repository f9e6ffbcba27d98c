import { beforeAll, describe, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { expectStatus, logInAs, sha256, uploadIdOf, uploadMetadata } from '../support/client.ts';
import type { Client, Json } from '../support/client.ts';
import { admin, baseUrl } from '../support/contract.ts';
import { RawConnection } from '../support/raw-http.ts';
import { uniqueName } from '../support/system.ts';
import {
  append,
  completeUpload,
  contentOf,
  createUpload,
  expectTusProblem,
  finalize,
  makeUpload,
  offsetOf,
  offsetType,
} from '../support/uploads.ts';

const base64 = (text: string): string => Buffer.from(text).toString('base64');

describe('tus 1.0.0, creation', () => {
  let client: Client;

  beforeAll(async () => {
    client = await admin();
  });

  test('N01 creation is announced', async () => {
    const answer = await client.call('OPTIONS', '/files');
    expect(answer.headers.get('tus-extension')?.split(',')).toContain('creation');
  });

  test.each<Record<string, string>>([
    {},
    { 'upload-length': '4', 'upload-defer-length': '1' },
    { 'upload-defer-length': '0' },
    { 'upload-defer-length': 'true' },
    { 'upload-defer-length': '' },
  ])('N02 POST with %j is 400', async (headers) => {
    const answer = await client.tus('POST', '/files', headers);
    expectTusProblem(answer, 400, 'validation_failed');
    expect(answer.headers.get('location')).toBeNull();
  });

  test('N03 POST is 201 with a Location that HEAD works on at once', async () => {
    const { answer, path } = await makeUpload(client, { length: 10 });
    expect(answer.headers.get('location')).toMatch(/^\/files\/[0-9a-f-]{36}$/);
    expect(answer.headers.get('upload-offset')).toBe('0');
    expect(answer.bytes).toHaveLength(0);
    expect(await offsetOf(client, path)).toBe(0);
  });

  test('N03 Location never takes the host from the request', async () => {
    const connection = await RawConnection.open(baseUrl());
    await connection.request('POST', '/files', [
      ['authorization', `Bearer ${client.token ?? ''}`],
      ['tus-resumable', '1.0.0'],
      ['upload-length', '4'],
      ['x-forwarded-host', 'evil.test'],
      ['x-forwarded-proto', 'https'],
      ['forwarded', 'host=evil.test;proto=https'],
    ]);
    const answer = await connection.answer();
    connection.cut();
    expect(answer.headers['location']).toMatch(/^\/files\/[0-9a-f-]{36}$/);
  });

  test('N04 a length over Tus-Max-Size is 413', async () => {
    expectTusProblem(await createUpload(client, { length: 2 ** 40 + 1 }), 413, 'payload_too_large');
    expectTusProblem(await createUpload(client, { length: Number.MAX_SAFE_INTEGER }), 413, 'payload_too_large');
  });

  test('N05 an upload of no bytes is complete at once and can be finalized', async () => {
    const upload = await makeUpload(client, { length: 0, metadata: { filename: uniqueName('empty') } });
    const head = await client.tus('HEAD', upload.path);
    expect([head.headers.get('upload-offset'), head.headers.get('upload-length')]).toEqual(['0', '0']);
    const file = expectStatus(await finalize(client, upload), 201).json;
    expect(file).toMatchObject({ size: 0, sha256: sha256('') });
    expect(await contentOf(client, file['id'])).toHaveLength(0);
  });

  test.each([
    'filename',
    `filename  ${base64('two spaces')}`,
    'filename not*base64',
    `filename ${base64('a').replaceAll('=', '')}`,
    `filename ${base64('abc')} more`,
    `,filename ${base64('a')}`,
    `filename ${base64('a')},`,
    `filename ${base64('a')},filename ${base64('b')}`,
    `file:name ${base64('a')},,x ${base64('b')}`,
    `filename ${Buffer.from([0xff, 0xfe]).toString('base64')}`,
  ])('N06 and T31 Upload-Metadata "%s" is 400', async (metadata) => {
    // A filename that is empty is refused for itself; the others for their form.
    const answer = await client.tus('POST', '/files', { 'upload-length': '1', 'upload-metadata': metadata });
    expectTusProblem(answer, 400, 'validation_failed');
  });

  test('T31 Upload-Metadata over 8 KiB or 16 keys is 400; right below it is taken', async () => {
    const keys = (count: number): string =>
      Array.from({ length: count }, (_, index) => `key${index} ${base64('v')}`).join(',');
    const long = (bytes: number): string => `note ${base64('x'.repeat(9_000)).slice(0, bytes - 5)}`;
    const status = async (metadata: string): Promise<number> =>
      (await client.tus('POST', '/files', { 'upload-length': '1', 'upload-metadata': metadata })).status;
    expect(await status(keys(16))).toBe(201);
    expect(await status(keys(17))).toBe(400);
    expect(await status(long(8 * 1024 - 3))).toBe(201);
    expect(await status(long(8 * 1024 + 1))).toBe(400);
  });

  test('T31 keys such as __proto__ and constructor do no harm', async () => {
    const metadata = uploadMetadata({ constructor: 'y', toString: 'z', filename: uniqueName() });
    const given = `__proto__ ${base64('{"filename":"no"}')},${metadata}`;
    const upload = await makeUpload(client, { length: 0, headers: { 'upload-metadata': given } });
    const shown = expectStatus(await client.get(`/api/uploads/${upload.id}`), 200).json;
    expect(shown['filename']).toMatch(/^name-/);
    expect((await client.tus('HEAD', upload.path)).headers.get('upload-metadata')).toBe(given);
  });

  test('N07 HEAD gives Upload-Metadata back exactly as it came', async () => {
    const metadata = `filename ${base64('Grüße 🎈.txt')},is_public,note ,Own-Key ${base64('x, y')}`;
    const { path } = await makeUpload(client, { length: 1, headers: { 'upload-metadata': metadata } });
    expect((await client.tus('HEAD', path)).headers.get('upload-metadata')).toBe(metadata);
    const bare = await makeUpload(client, { length: 1 });
    expect((await client.tus('HEAD', bare.path)).headers.get('upload-metadata')).toBeNull();
  });

  test('N08 a name can not smuggle anything into a header', async () => {
    for (const filename of ['a\r\nSet-Cookie: x=1', 'a\nb', 'a\0b', 'a\u0085b']) {
      const refused = await createUpload(client, { length: 1, metadata: { filename } });
      expectTusProblem(refused, 400, 'validation_failed');
    }
    const filename = `${uniqueName()}"; filename=evil.exe; x="é\\.txt`;
    const file = await client.putFile(filename, 'text', { type: 'text/plain\r\nX-Evil: 1' });
    const download = expectStatus(await client.get(`/api/files/${file['id']}/download`), 200);
    const disposition = download.headers.get('content-disposition') ?? '';
    expect(disposition).toMatch(
      /^attachment; filename="(?:[^"\\]|\\["\\])*"; filename\*=UTF-8''[A-Za-z0-9!#$&+.^_`|~%-]+$/,
    );
    expect(decodeURIComponent(disposition.split("UTF-8''")[1] ?? '')).toBe(filename);
    expect(download.headers.get('x-evil')).toBeNull();
  });

  test('N09 two POSTs make two uploads, and one that nobody goes on with leaves no file', async () => {
    const directory = await client.makeDirectory(uniqueName('lost'));
    const metadata = { filename: 'same.txt', directory_id: String(directory['id']) };
    const first = await completeUpload(client, Buffer.from('first'), metadata);
    const second = await makeUpload(client, { length: 6, metadata });
    expect(second.id).not.toBe(first.id);
    expect(second.answer.headers.get('upload-expires')).not.toBeNull();
    const children = expectStatus(await client.get(`/api/directories/${directory['id']}/children`), 200).json;
    expect(children['items']).toEqual([]);
  });

  test('N10 a deferred length shows as Upload-Defer-Length until it is known', async () => {
    const { path } = await makeUpload(client, { length: null });
    const before = await client.tus('HEAD', path);
    expect([before.headers.get('upload-defer-length'), before.headers.get('upload-length')]).toEqual(['1', null]);
    expectStatus(await append(client, path, 0, Buffer.from('half')), 204);
    expect((await client.tus('HEAD', path)).headers.get('upload-defer-length')).toBe('1');
    expectStatus(await append(client, path, 4, Buffer.from('done'), { 'upload-length': '8' }), 204);
    const after = await client.tus('HEAD', path);
    expect([after.headers.get('upload-defer-length'), after.headers.get('upload-length')]).toEqual([null, '8']);
  });

  test('N11 a length is set once: another one is 400, and one below the offset or over the maximum is refused', async () => {
    const upload = await makeUpload(client, { length: null, metadata: { filename: uniqueName('deferred') } });
    expectStatus(await append(client, upload.path, 0, Buffer.from('1234')), 204);
    expectTusProblem(
      await append(client, upload.path, 4, Buffer.alloc(0), { 'upload-length': '3' }),
      400,
      'validation_failed',
    );
    const huge = await append(client, upload.path, 4, Buffer.alloc(0), { 'upload-length': String(2 ** 40 + 1) });
    expectTusProblem(huge, 413, 'payload_too_large');
    expect((await finalize(client, upload)).json).toMatchObject({ code: 'upload_incomplete', offset: 4, length: null });
    expectStatus(await append(client, upload.path, 4, Buffer.alloc(0), { 'upload-length': '6' }), 204);
    expectTusProblem(
      await append(client, upload.path, 4, Buffer.from('5'), { 'upload-length': '7' }),
      400,
      'validation_failed',
    );
    expectStatus(await append(client, upload.path, 4, Buffer.from('56'), { 'upload-length': '6' }), 204);
    const file = expectStatus(await finalize(client, upload), 201).json;
    expect(file).toMatchObject({ size: 6, sha256: sha256('123456') });
    const known = await makeUpload(client, { length: 4 });
    expectTusProblem(
      await append(client, known.path, 0, Buffer.from('1234'), { 'upload-length': '5' }),
      400,
      'validation_failed',
    );
    expect(await offsetOf(client, known.path)).toBe(0);
  });

  test.each(['-1', '+5', ' ', '5 5', '0x10', '1e3', '1e999', '05', '5.0', 'abc', String(2 ** 63), '9'.repeat(400)])(
    'T29 Upload-Length "%s" is refused',
    async (length) => {
      const answer = await client.tus('POST', '/files', { 'upload-length': length });
      expect([400, 413]).toContain(answer.status);
      expect(answer.headers.get('location')).toBeNull();
    },
  );

  test('T27 upload ids can not be guessed from one another', async () => {
    const made = await Promise.all(Array.from({ length: 40 }, () => makeUpload(client, { length: 1 })));
    // The 62 bits of rand_b of a UUIDv7 (RFC 9562) stand behind the last two dashes.
    const tails = made.map(({ id }) => BigInt(`0x${id.slice(19).replace('-', '')}`)).sort((a, b) => (a < b ? -1 : 1));
    expect(new Set(tails).size).toBe(tails.length);
    const gaps = tails.slice(1).map((tail, index) => tail - (tails[index] ?? 0n));
    expect(gaps.every((gap) => gap > 2n ** 20n)).toBe(true);
  });
});

describe('tus 1.0.0, creation with upload', () => {
  let client: Client;

  beforeAll(async () => {
    client = await admin();
  });

  test('W01 it is announced together with creation', async () => {
    const extensions = (await client.call('OPTIONS', '/files')).headers.get('tus-extension')?.split(',');
    expect(extensions).toEqual(expect.arrayContaining(['creation', 'creation-with-upload']));
  });

  test('W02 the body of the POST is stored, and Upload-Offset tells how much', async () => {
    const { answer, path } = await makeUpload(client, { length: 10, body: Buffer.from('first') });
    expect(answer.headers.get('upload-offset')).toBe('5');
    expect(await offsetOf(client, path)).toBe(5);
  });

  test('W03 a body of another type is 415 and makes no upload', async () => {
    const answer = await client.tus(
      'POST',
      '/files',
      { 'upload-length': '4', 'content-type': 'text/plain' },
      Buffer.from('data'),
    );
    expectTusProblem(answer, 415, 'unsupported_media_type');
    expect(answer.headers.get('location')).toBeNull();
  });

  test('W05 one POST suffices for a whole upload, then finalize', async () => {
    const bytes = randomBytes(2 * 1024 * 1024 + 3);
    const upload = await completeUpload(client, bytes, { filename: uniqueName('whole') });
    expect(upload.answer.headers.get('upload-offset')).toBe(String(bytes.length));
    const file = expectStatus(await finalize(client, upload), 201).json;
    expect(sha256(await contentOf(client, file['id']))).toBe(sha256(bytes));
  });

  test('W05 the body may be chunked', async () => {
    const connection = await RawConnection.open(baseUrl());
    await connection.request('POST', '/files', [
      ['authorization', `Bearer ${client.token ?? ''}`],
      ['tus-resumable', '1.0.0'],
      ['upload-length', '4'],
      ['content-type', offsetType],
      ['transfer-encoding', 'chunked'],
    ]);
    await connection.sendChunk(Buffer.from('da'));
    await connection.sendChunk(Buffer.from('ta'));
    await connection.sendChunk(Buffer.alloc(0));
    const answer = await connection.answer();
    connection.cut();
    expect([answer.status, answer.headers['upload-offset']]).toEqual([201, '4']);
  });

  test('W06 a checksum on the POST is checked', async () => {
    const checksum = (text: string): string => `sha256 ${Buffer.from(sha256(text), 'hex').toString('base64')}`;
    const body = Buffer.from('data');
    const good = await makeUpload(client, { length: 8, body, headers: { 'upload-checksum': checksum('data') } });
    expect(await offsetOf(client, good.path)).toBe(4);
    const bad = await createUpload(client, { length: 8, body, headers: { 'upload-checksum': checksum('other') } });
    expectTusProblem(bad, 460, 'chunk_checksum_mismatch');
    // Either no upload was made, or its address is told and nothing counts.
    if (bad.headers.get('location')) expect(await offsetOf(client, `/files/${uploadIdOf(bad)}`)).toBe(0);
  });

  test('T30 a body longer than Upload-Length is 413', async () => {
    expectTusProblem(await createUpload(client, { length: 4, body: Buffer.from('five!') }), 413, 'payload_too_large');
  });
});

describe('what can be refused early is refused at creation', () => {
  let client: Client;

  beforeAll(async () => {
    client = await admin();
  });

  test.each(['', '.', '..', 'a/b', '/', ' a', 'a ', 'a\u202eb', 'a\u0007', 'x'.repeat(256), 'ü'.repeat(128)])(
    'the malformed name %j is 400',
    async (filename) => {
      expectTusProblem(await createUpload(client, { length: 1, metadata: { filename } }), 400, 'validation_failed');
    },
  );

  test('a directory that does not exist, or is a file, is 404; one that can not be an id is 400', async () => {
    const file = await client.putFile(uniqueName('file'), 'x');
    for (const directory_id of ['0193fa2c-7a3e-7cc1-9f0e-0d5f1a2b3c4d', String(file['id'])]) {
      expectTusProblem(
        await createUpload(client, { length: 1, metadata: { filename: 'a', directory_id } }),
        404,
        'not_found',
      );
    }
    const malformed = await createUpload(client, { length: 1, metadata: { filename: 'a', directory_id: '../etc' } });
    expectTusProblem(malformed, 400, 'validation_failed');
  });

  test('a directory in the recycle bin is 409', async () => {
    const directory: Json = await client.makeDirectory(uniqueName('binned'));
    expectStatus(await client.delete(`/api/directories/${directory['id']}`), 200);
    const answer = await createUpload(client, {
      length: 1,
      metadata: { filename: 'a', directory_id: String(directory['id']) },
    });
    expectTusProblem(answer, 409, 'state_conflict');
  });

  test.each<[string, string]>([
    ['file_class', 'Image'],
    ['file_class', '1st'],
    ['file_class', 'x'.repeat(64)],
    ['sha256', 'abc'],
    ['sha256', 'z'.repeat(64)],
    ['on_conflict', 'overwrite'],
  ])('%s "%s" is 400', async (key, value) => {
    const answer = await createUpload(client, { length: 1, metadata: { filename: 'a', [key]: value } });
    expectTusProblem(answer, 400, 'validation_failed');
  });

  test('a size that the disk has no room for is 507', async () => {
    const { bavail, bsize } = await statfs(tmpdir());
    const allowed = 2 ** 40;
    if (bavail * bsize > allowed) return;
    expectTusProblem(
      await createUpload(client, { length: allowed, metadata: { filename: uniqueName() } }),
      507,
      'insufficient_storage',
    );
  });

  test('a viewer may not upload', async () => {
    const viewer = await logInAs(client, 'viewer', uniqueName('viewer'));
    expectTusProblem(await createUpload(viewer, { length: 1 }), 403, 'forbidden');
  });
});
