import { beforeAll, describe, expect, test } from '@jest/globals';
import { createHash, randomBytes } from 'node:crypto';
import { expectStatus, sha256, until } from '../support/client.ts';
import type { Client } from '../support/client.ts';
import { admin } from '../support/contract.ts';
import { uniqueName } from '../support/system.ts';
import { append, contentOf, expectTusProblem, finalize, makeUpload, offsetOf, openAppend } from '../support/uploads.ts';

function checksum(algorithm: 'sha1' | 'sha256', bytes: Buffer): Record<string, string> {
  return { 'upload-checksum': `${algorithm} ${createHash(algorithm).update(bytes).digest('base64')}` };
}

describe('tus 1.0.0, checksum', () => {
  let client: Client;
  const good = Buffer.from('good');

  beforeAll(async () => {
    client = await admin();
  });

  test('K01 OPTIONS lists the algorithms, sha1 among them, in lower case', async () => {
    const algorithms = (await client.call('OPTIONS', '/files')).headers.get('tus-checksum-algorithm')?.split(',');
    expect(algorithms).toEqual(['sha1', 'sha256']);
  });

  test.each(['md5', 'SHA1', 'crc32c', 'sha-256', '__proto__'])(
    'K02 the algorithm %s is 400 and the chunk is dropped',
    async (name) => {
      const { path } = await makeUpload(client, { length: 4 });
      const header = { 'upload-checksum': `${name} ${createHash('sha1').update(good).digest('base64')}` };
      expectTusProblem(await append(client, path, 0, good, header), 400, 'validation_failed');
      expect(await offsetOf(client, path)).toBe(0);
    },
  );

  test.each(['sha1', 'sha256'] as const)(
    'K03 a chunk with a wrong %s is 460 and leaves the offset',
    async (algorithm) => {
      const { path } = await makeUpload(client, { length: 8 });
      expectStatus(await append(client, path, 0, good), 204);
      expectTusProblem(
        await append(client, path, 4, Buffer.from('evil'), checksum(algorithm, good)),
        460,
        'chunk_checksum_mismatch',
      );
      expect(await offsetOf(client, path)).toBe(4);
      expectStatus(await append(client, path, 4, good, checksum(algorithm, good)), 204);
    },
  );

  test('K03 nothing of a long chunk that was wrong stays in the content', async () => {
    const wrong = randomBytes(9 * 1024 * 1024);
    const right = randomBytes(1000);
    const upload = await makeUpload(client, {
      length: 5 + wrong.length,
      metadata: { filename: uniqueName('rolled-back') },
    });
    expectStatus(await append(client, upload.path, 0, Buffer.from('start')), 204);
    expectTusProblem(
      await append(client, upload.path, 5, wrong, checksum('sha256', right)),
      460,
      'chunk_checksum_mismatch',
    );
    expect(await offsetOf(client, upload.path)).toBe(5);
    const whole = Buffer.concat([right, wrong.subarray(right.length)]);
    expectStatus(await append(client, upload.path, 5, right, checksum('sha256', right)), 204);
    expectStatus(await append(client, upload.path, 5 + right.length, wrong.subarray(right.length)), 204);
    const file = expectStatus(await finalize(client, upload), 201).json;
    const expected = Buffer.concat([Buffer.from('start'), whole]);
    expect(file['sha256']).toBe(sha256(expected));
    expect(sha256(await contentOf(client, file['id']))).toBe(sha256(expected));
  });

  test('K04 a chunk with the right checksum is 204, an empty one too', async () => {
    const { path } = await makeUpload(client, { length: 8 });
    expectStatus(await append(client, path, 0, good, checksum('sha1', good)), 204);
    expectStatus(await append(client, path, 4, Buffer.alloc(0), checksum('sha1', Buffer.alloc(0))), 204);
    expectStatus(await append(client, path, 4, good, checksum('sha256', good)), 204);
    expect(await offsetOf(client, path)).toBe(8);
  });

  test.each([
    '',
    'sha1',
    'sha1 ',
    'sha1 !!!!',
    `sha1 ${createHash('sha256').update('good').digest('base64')}`,
    `sha256 ${createHash('sha256').update('good').digest('hex')}`,
    `sha1  ${createHash('sha1').update('good').digest('base64')}`,
    `sha1 ${createHash('sha1').update('good').digest('base64')} more`,
    `sha1 ${createHash('sha1').update('good').digest('base64').replace('=', '')}`,
  ])('K05 the malformed Upload-Checksum "%s" is 400', async (header) => {
    const { path } = await makeUpload(client, { length: 4 });
    expectTusProblem(await append(client, path, 0, good, { 'upload-checksum': header }), 400, 'validation_failed');
    expect(await offsetOf(client, path)).toBe(0);
  });

  test('K06 of a body with a checksum that breaks off nothing counts, neither while it runs nor after', async () => {
    const bytes = randomBytes(4 * 1024 * 1024);
    const upload = await makeUpload(client, { length: bytes.length, metadata: { filename: uniqueName('cut') } });
    const header: readonly [string, string] = ['upload-checksum', checksum('sha1', bytes)['upload-checksum'] ?? ''];
    const connection = await openAppend(client, upload.path, { offset: 0, length: bytes.length, headers: [header] });
    await connection.send(bytes.subarray(0, 3 * 1024 * 1024));
    expect(await offsetOf(client, upload.path)).toBe(0);
    connection.cut();
    await until(async () => (await append(client, upload.path, 0, Buffer.alloc(0))).status === 204);
    expect(await offsetOf(client, upload.path)).toBe(0);
    expectStatus(await append(client, upload.path, 0, bytes, checksum('sha1', bytes)), 204);
    expect(expectStatus(await finalize(client, upload), 201).json['sha256']).toBe(sha256(bytes));
  });

  test('K07 checksum-trailer is not announced, and a trailer is not taken for a checksum', async () => {
    expect((await client.call('OPTIONS', '/files')).headers.get('tus-extension')).not.toContain('trailer');
    const { path } = await makeUpload(client, { length: 4 });
    const connection = await openAppend(client, path, { offset: 0, headers: [['trailer', 'Upload-Checksum']] });
    await connection.sendChunk(good);
    await connection.send('0\r\nUpload-Checksum: sha1 AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n');
    const answer = await connection.answer();
    connection.cut();
    expect([answer.status, await offsetOf(client, path)]).toEqual([204, 4]);
  });

  test('a body with a checksum that is longer than the upload leaves nothing behind', async () => {
    const { path } = await makeUpload(client, { length: 4 });
    const long = Buffer.from('good and more');
    expectTusProblem(await append(client, path, 0, long, checksum('sha1', long)), 413, 'payload_too_large');
    expect(await offsetOf(client, path)).toBe(0);
  });
});
