import { beforeAll, describe, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { Client, expectStatus, sha256, until } from '../support/client.ts';
import { admin, baseUrl } from '../support/contract.ts';
import { RawConnection } from '../support/raw-http.ts';
import type { HeaderLines } from '../support/raw-http.ts';
import { uniqueName } from '../support/system.ts';
import {
  append,
  contentOf,
  createUpload,
  expectTusProblem,
  finalize,
  makeUpload,
  offsetOf,
  offsetType,
  openAppend,
} from '../support/uploads.ts';

/** Ids are those of the conformance checklist. */
describe('tus 1.0.0, core', () => {
  let client: Client;
  const megabyte = 1024 * 1024;
  const unknown = '/files/0193fa2c-7a3e-7cc1-9f0e-0d5f1a2b3c4d';

  beforeAll(async () => {
    client = await admin();
  });

  const metadata = (): Record<string, string> => ({ filename: uniqueName('tus') });
  const authorised = (...more: HeaderLines): HeaderLines => [
    ['authorization', `Bearer ${client.token ?? ''}`],
    ['tus-resumable', '1.0.0'],
    ...more,
  ];

  test('C01 HEAD tells Upload-Offset at 0, midway and when complete', async () => {
    const { path } = await makeUpload(client, { length: 8, metadata: metadata() });
    expect(await offsetOf(client, path)).toBe(0);
    expectStatus(await append(client, path, 0, Buffer.from('half')), 204);
    expect(await offsetOf(client, path)).toBe(4);
    expectStatus(await append(client, path, 4, Buffer.from('done')), 204);
    expect(await offsetOf(client, path)).toBe(8);
  });

  test('C02 HEAD tells Upload-Length where it is known', async () => {
    const { path } = await makeUpload(client, { length: 12_345, metadata: metadata() });
    expect((await client.tus('HEAD', path)).headers.get('upload-length')).toBe('12345');
  });

  test('C03 HEAD must not be stored by caches', async () => {
    const { path } = await makeUpload(client, { length: 1, metadata: metadata() });
    expect((await client.tus('HEAD', path)).headers.get('cache-control')).toContain('no-store');
  });

  test('C04 HEAD is 200 without a body', async () => {
    const { path } = await makeUpload(client, { length: 1, metadata: metadata() });
    const answer = await client.tus('HEAD', path);
    expect([200, 204]).toContain(answer.status);
    expect(answer.bytes).toHaveLength(0);
    expect(answer.headers.get('tus-resumable')).toBe('1.0.0');
  });

  test.each([
    ['an unknown id', unknown],
    ['an id that is none', '/files/nonsense'],
    ['an escaped path', '/files/..%2f..%2fetc%2fpasswd'],
    ['a NUL', '/files/%00'],
    ['a backslash', '/files/..%5c..%5cetc'],
  ])('C05 HEAD on %s is 404 and tells no offset', async (_name, path) => {
    const answer = await client.tus('HEAD', path);
    expect(answer.status).toBe(404);
    expect(answer.headers.get('upload-offset')).toBeNull();
    expect(answer.headers.get('tus-resumable')).toBe('1.0.0');
  });

  test.each(['text/plain', 'application/octet-stream', 'application/json', null])(
    'C06 PATCH as %s is 415 and stores nothing',
    async (type) => {
      const { path } = await makeUpload(client, { length: 4, metadata: metadata() });
      const connection = await RawConnection.open(baseUrl());
      const typed: HeaderLines = type === null ? [] : [['content-type', type]];
      await connection.request('PATCH', path, authorised(['upload-offset', '0'], ['content-length', '4'], ...typed));
      await connection.send('data');
      const answer = await connection.answer();
      connection.cut();
      expect(answer.status).toBe(415);
      expect(JSON.parse(answer.body.toString())).toMatchObject({ code: 'unsupported_media_type' });
      expect(await offsetOf(client, path)).toBe(0);
    },
  );

  test.each([null, '-1', '+1', '1.0', '0x0', '01', '', 'one', '1e1', '99999999999999999'])(
    'C07 PATCH with Upload-Offset %s is 400',
    async (offset) => {
      const { path } = await makeUpload(client, { length: 4, metadata: metadata() });
      const headers: Record<string, string> = offset === null ? {} : { 'upload-offset': offset };
      expectTusProblem(await client.tus('PATCH', path, headers, Buffer.from('data')), 400, 'validation_failed');
      expect(await offsetOf(client, path)).toBe(0);
    },
  );

  test('C08 PATCH at another offset is 409 and changes nothing', async () => {
    const upload = await makeUpload(client, { length: 8, metadata: metadata() });
    expectStatus(await append(client, upload.path, 0, Buffer.from('1234')), 204);
    for (const offset of [0, 3, 5, 8, 9]) {
      const refused = await append(client, upload.path, offset, Buffer.from('xxxx'));
      expectTusProblem(refused, 409, 'offset_conflict');
      expect(refused.json['offset']).toBe(4);
    }
    expect(await offsetOf(client, upload.path)).toBe(4);
    expectStatus(await append(client, upload.path, 4, Buffer.from('5678')), 204);
    const file = expectStatus(await finalize(client, upload), 201).json;
    expect((await contentOf(client, file['id'])).toString()).toBe('12345678');
  });

  test('C09 PATCH is 204 with the new offset, and the content is what was sent', async () => {
    const bytes = randomBytes(3 * megabyte + 17);
    const upload = await makeUpload(client, { length: bytes.length, metadata: metadata() });
    let offset = 0;
    for (const end of [1, megabyte, 2 * megabyte + 5, bytes.length]) {
      const answer = expectStatus(await append(client, upload.path, offset, bytes.subarray(offset, end)), 204);
      expect(answer.bytes).toHaveLength(0);
      expect(answer.headers.get('upload-offset')).toBe(String(end));
      offset = end;
    }
    const file = expectStatus(await finalize(client, upload), 201).json;
    expect(file).toMatchObject({ size: bytes.length, sha256: sha256(bytes) });
    expect(sha256(await contentOf(client, file['id']))).toBe(sha256(bytes));
  });

  test('C10 PATCH on an unknown id is 404', async () => {
    expectTusProblem(await append(client, unknown, 0, Buffer.from('data')), 404, 'not_found');
  });

  test('C11 a broken connection keeps what arrived, and the upload goes on from there', async () => {
    const bytes = randomBytes(6 * megabyte);
    const upload = await makeUpload(client, { length: bytes.length, metadata: metadata() });
    let from = 0;
    for (const sent of [300_000, 2 * megabyte + 77, 3 * megabyte]) {
      const connection = await openAppend(client, upload.path, { offset: from, length: bytes.length - from });
      for (let at = 0; at < sent; at += 100_000) {
        await connection.send(bytes.subarray(from + at, from + Math.min(at + 100_000, sent)));
        // Gives the service the time to read.
        expect(await offsetOf(client, upload.path)).toBeLessThanOrEqual(from + sent);
      }
      connection.cut();
      const least = from + Math.max(1, sent - megabyte);
      await until(async () => (await offsetOf(client, upload.path)) >= least);
      const kept = await settledOffset(upload.path);
      expect(kept).toBeLessThanOrEqual(from + sent);
      from = kept;
    }
    expectStatus(await append(client, upload.path, from, bytes.subarray(from)), 204);
    const file = expectStatus(await finalize(client, upload), 201).json;
    expect(sha256(await contentOf(client, file['id']))).toBe(sha256(bytes));
  });

  /** The offset once no writer is at work: an empty PATCH is taken there. */
  function settledOffset(path: string): Promise<number> {
    return until(async () => {
      const offset = await offsetOf(client, path);
      const probe = await append(client, path, offset, Buffer.alloc(0));
      return probe.status === 204 ? offset : null;
    });
  }

  test('C13 PATCH without a byte is 204 and leaves the offset', async () => {
    const { path } = await makeUpload(client, { length: 4, metadata: metadata() });
    expect(expectStatus(await append(client, path, 0, Buffer.alloc(0)), 204).headers.get('upload-offset')).toBe('0');
    expectStatus(await append(client, path, 0, Buffer.from('12')), 204);
    expect(expectStatus(await append(client, path, 2, Buffer.alloc(0)), 204).headers.get('upload-offset')).toBe('2');
  });

  test('C14 a complete upload takes an empty PATCH and never grows', async () => {
    const upload = await makeUpload(client, { length: 4, metadata: metadata(), body: Buffer.from('full') });
    expect(expectStatus(await append(client, upload.path, 4, Buffer.alloc(0)), 204).headers.get('upload-offset')).toBe(
      '4',
    );
    const more = await append(client, upload.path, 4, Buffer.from('more'));
    expect([400, 409, 413]).toContain(more.status);
    expectTusProblem(await append(client, upload.path, 0, Buffer.from('anew')), 409, 'offset_conflict');
    expect(await offsetOf(client, upload.path)).toBe(4);
    const file = expectStatus(await finalize(client, upload), 201).json;
    expect((await contentOf(client, file['id'])).toString()).toBe('full');
  });

  test('C15 a chunked body without Content-Length works', async () => {
    const bytes = randomBytes(200_000);
    const upload = await makeUpload(client, { length: bytes.length, metadata: metadata() });
    const connection = await openAppend(client, upload.path, { offset: 0 });
    for (let at = 0; at < bytes.length; at += 50_001) await connection.sendChunk(bytes.subarray(at, at + 50_001));
    await connection.sendChunk(Buffer.alloc(0));
    const answer = await connection.answer();
    connection.cut();
    expect(answer.status).toBe(204);
    expect(answer.headers['upload-offset']).toBe('200000');
    const file = expectStatus(await finalize(client, upload), 201).json;
    expect(file['sha256']).toBe(sha256(bytes));
  });

  test.each(['', '0.2.2', '1.0.1', '1.0.0, 1.0.0'])(
    'C16 Tus-Resumable "%s" is 412 and nothing is done',
    async (version) => {
      const { path } = await makeUpload(client, { length: 4, metadata: metadata() });
      const wrong: Record<string, string> = { 'tus-resumable': version };
      const attempts = [
        await client.tus('POST', '/files', { ...wrong, 'upload-length': '4' }),
        await client.tus('PATCH', path, { ...wrong, 'upload-offset': '0' }, Buffer.from('data')),
        await client.tus('DELETE', path, wrong),
      ];
      for (const answer of attempts) {
        expectTusProblem(answer, 412, 'tus_version_unsupported');
        expect(answer.headers.get('tus-version')).toBe('1.0.0');
        expect(answer.headers.get('location')).toBeNull();
      }
      const head = await client.tus('HEAD', path, wrong);
      expect([head.status, head.headers.get('tus-version'), head.headers.get('upload-offset')]).toEqual([
        412,
        '1.0.0',
        null,
      ]);
      expect(await offsetOf(client, path)).toBe(0);
    },
  );

  test('C16 a request without Tus-Resumable is 412', async () => {
    const answer = await client.call('POST', '/files', { headers: { 'upload-length': '4' } });
    expectTusProblem(answer, 412, 'tus_version_unsupported');
  });

  test('C17 Tus-Resumable is in every answer, errors too', async () => {
    const { path, answer } = await makeUpload(client, { length: 4, metadata: metadata() });
    const answers = [
      answer,
      await client.tus('HEAD', path),
      await append(client, path, 0, Buffer.from('ok')),
      await append(client, path, 0, Buffer.from('ok')),
      await client.tus('GET', path),
      await client.tus('PUT', path),
      await new Client(baseUrl()).tus('HEAD', path),
      await new Client(baseUrl(), 'stw_wrong').tus('POST', '/files'),
      await createUpload(client, { length: 4, metadata: { filename: '..' } }),
      await client.tus('DELETE', path),
    ];
    for (const { headers } of answers) expect(headers.get('tus-resumable')).toBe('1.0.0');
    expect(answers.map(({ status }) => status)).toEqual([201, 200, 204, 409, 405, 405, 401, 401, 400, 204]);
  });

  test.each(['/files', unknown])('C18 OPTIONS %s tells what is spoken, without a token', async (path) => {
    for (const headers of [{}, { 'tus-resumable': '0.0.1' }]) {
      const answer = await new Client(baseUrl()).call('OPTIONS', path, { headers });
      expect(answer.status).toBe(204);
      expect(answer.headers.get('tus-version')).toBe('1.0.0');
      expect(answer.headers.get('tus-resumable')).toBe('1.0.0');
      expect(answer.headers.get('tus-max-size')).toBe(String(2 ** 40));
      const extensions = answer.headers.get('tus-extension')?.split(',').sort();
      expect(extensions).toEqual([
        'checksum',
        'creation',
        'creation-defer-length',
        'creation-with-upload',
        'expiration',
        'termination',
      ]);
    }
  });

  test('C19 X-HTTP-Method-Override on POST is taken as the method', async () => {
    const { path } = await makeUpload(client, { length: 4, metadata: metadata() });
    const patched = await client.tus(
      'POST',
      path,
      { 'x-http-method-override': 'PATCH', 'upload-offset': '0' },
      Buffer.from('data'),
    );
    expect([patched.status, patched.headers.get('upload-offset')]).toEqual([204, '4']);
    const head = await client.tus('POST', path, { 'x-http-method-override': 'HEAD' });
    expect([head.status, head.headers.get('upload-offset')]).toEqual([200, '4']);
    expectStatus(await client.tus('POST', path, { 'x-http-method-override': 'DELETE' }), 204);
    expect((await client.tus('HEAD', path)).status).toBeGreaterThanOrEqual(404);
  });

  test('T10 the override works under /files from POST only, for the three methods only, and within the rights', async () => {
    const { path } = await makeUpload(client, { length: 4, metadata: metadata() });
    const override = (method: string): Record<string, string> => ({
      'x-http-method-override': method,
      'upload-offset': '0',
    });
    expectTusProblem(await client.tus('POST', path, override('GET')), 405, 'method_not_allowed');
    expectTusProblem(await client.tus('POST', path, override('POST')), 405, 'method_not_allowed');
    expectTusProblem(await client.tus('POST', path), 405, 'method_not_allowed');
    expectTusProblem(await client.tus('GET', path, override('DELETE')), 405, 'method_not_allowed');
    expectTusProblem(await new Client(baseUrl()).tus('POST', path, override('DELETE')), 401, 'unauthenticated');
    expect(await offsetOf(client, path)).toBe(0);
    const file = await client.putFile(uniqueName('kept'), 'kept');
    expectStatus(await client.call('GET', `/api/files/${file['id']}`, { headers: override('DELETE') }), 200);
    expectStatus(await client.call('POST', `/api/files/${file['id']}`, { body: {}, headers: override('DELETE') }), 405);
    expect((await client.get(`/api/files/${file['id']}`)).json['state']).toBe('active');
  });

  test('C20 "Expect: 100-continue" is answered with 100 where the body is wanted', async () => {
    const upload = await makeUpload(client, { length: 4, metadata: metadata() });
    const connection = await openAppend(client, upload.path, {
      offset: 0,
      length: 4,
      headers: [['expect', '100-continue']],
    });
    expect((await connection.answer()).status).toBe(100);
    await connection.send('data');
    const answer = await connection.answer();
    connection.cut();
    expect([answer.status, answer.headers['upload-offset']]).toEqual([204, '4']);
  });

  test.each<[string, string, number, (path: string) => HeaderLines]>([
    ['without a token', 'PATCH', 401, () => [['content-type', offsetType]]],
    ['of another version', 'PATCH', 412, () => [...authorised().slice(0, 1), ['content-type', offsetType]]],
    ['of another type', 'PATCH', 415, () => authorised(['content-type', 'text/plain'])],
    ['of a doubtful offset', 'PATCH', 400, () => authorised(['content-type', offsetType], ['upload-offset', 'x'])],
    ['that creates without a length', 'POST', 400, () => authorised(['content-type', offsetType])],
  ])(
    'C20 "Expect: 100-continue" of a request %s is refused before the body',
    async (_name, method, status, headers) => {
      const { path } = await makeUpload(client, { length: 4, metadata: metadata() });
      const connection = await RawConnection.open(baseUrl());
      const target = method === 'POST' ? '/files' : path;
      await connection.request(method, target, [...headers(path), ['expect', '100-continue'], ['content-length', '4']]);
      const answer = await connection.answer();
      connection.cut();
      expect(answer.status).toBe(status);
    },
  );

  test('C21 header names and the media type may be in any case', async () => {
    const { path } = await makeUpload(client, { length: 4, metadata: metadata() });
    const connection = await RawConnection.open(baseUrl());
    await connection.request('PATCH', path, [
      ['AUTHORIZATION', `Bearer ${client.token ?? ''}`],
      ['TUS-RESUMABLE', '1.0.0'],
      ['uPLOAD-oFFSET', '0'],
      ['CONTENT-TYPE', 'Application/Offset+Octet-Stream'],
      ['Content-Length', '4'],
    ]);
    await connection.send('data');
    const answer = await connection.answer();
    connection.cut();
    expect([answer.status, answer.headers['upload-offset']]).toEqual([204, '4']);
  });

  test.each(['upload-offset', 'upload-length'])('C21 %s twice is 400', async (name) => {
    const { path } = await makeUpload(client, { length: 4, metadata: metadata() });
    const connection = await RawConnection.open(baseUrl());
    const twice: HeaderLines = [
      [name, '0'],
      [name, '0'],
      ['content-length', '0'],
    ];
    if (name === 'upload-length') await connection.request('POST', '/files', authorised(...twice));
    else await connection.request('PATCH', path, authorised(['content-type', offsetType], ...twice));
    const answer = await connection.answer();
    connection.cut();
    expect([answer.status, answer.headers['tus-resumable']]).toEqual([400, '1.0.0']);
  });
});
