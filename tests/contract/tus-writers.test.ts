import { beforeAll, describe, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { expectStatus, sha256, until } from '../support/client.ts';
import type { Answer, Client } from '../support/client.ts';
import { admin } from '../support/contract.ts';
import { uniqueName } from '../support/system.ts';
import {
  append,
  completeUpload,
  contentOf,
  expectTusProblem,
  finalize,
  makeUpload,
  offsetOf,
  openAppend,
} from '../support/uploads.ts';

const megabyte = 1024 * 1024;

describe('several writers on one upload', () => {
  let client: Client;

  beforeAll(async () => {
    client = await admin();
  });

  /** Appends from wherever the upload is, as a client does that resumes; gives where it began. */
  async function resume(path: string, bytes: Buffer): Promise<number> {
    return until(async () => {
      const offset = await offsetOf(client, path);
      const answer = await append(client, path, offset, bytes.subarray(offset));
      if (answer.status === 423) expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(0);
      else if (answer.status !== 409) expectStatus(answer, 204);
      return answer.status === 204 ? offset : null;
    });
  }

  test('T28 a resume takes over from a connection that stands still, within 2 s', async () => {
    const upload = await makeUpload(client, { length: 4 * megabyte, metadata: { filename: uniqueName('taken-over') } });
    const [old, young] = [randomBytes(4 * megabyte), randomBytes(4 * megabyte)];
    const standing = await openAppend(client, upload.path, { offset: 0, length: old.length });
    await standing.send(old.subarray(0, megabyte + 1000));
    await until(async () => (await offsetOf(client, upload.path)) > 0);
    const begun = performance.now();
    const offset = await resume(upload.path, young);
    expect(performance.now() - begun).toBeLessThan(2_500);
    // What the old one still sends goes nowhere.
    await standing.send(old.subarray(megabyte + 1000)).catch(() => undefined);
    const answer = await standing.answerOrClose();
    expect(answer?.status ?? 0).not.toBe(204);
    standing.cut();
    const file = expectStatus(await finalize(client, upload), 201).json;
    const expected = Buffer.concat([old.subarray(0, offset), young.subarray(offset)]);
    expect(sha256(await contentOf(client, file['id']))).toBe(sha256(expected));
  });

  test('T28 of two PATCHes at one offset the bytes of one are kept, never a mix', async () => {
    for (let round = 0; round < 6; round += 1) {
      const upload = await makeUpload(client, { length: 2 * megabyte, metadata: { filename: uniqueName('raced') } });
      const bodies = [randomBytes(2 * megabyte), randomBytes(2 * megabyte)];
      const answers = await Promise.all(bodies.map((body) => append(client, upload.path, 0, body)));
      const statuses = answers.map(({ status }) => status).sort();
      expect(statuses.filter((status) => status === 204).length).toBeLessThanOrEqual(1);
      expect(statuses.every((status) => [204, 409, 423].includes(status))).toBe(true);
      for (const answer of answers.filter(({ status }) => status === 423)) {
        expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(0);
      }
      const reached = await offsetOf(client, upload.path);
      await resume(upload.path, Buffer.alloc(2 * megabyte));
      const file = expectStatus(await finalize(client, upload), 201).json;
      const kept = (await contentOf(client, file['id'])).subarray(0, reached);
      expect(bodies.some((body) => body.subarray(0, reached).equals(kept))).toBe(true);
    }
  });

  test('HEAD during a PATCH does not wait, never goes back and never tells more than was sent', async () => {
    const bytes = randomBytes(6 * megabyte);
    const upload = await makeUpload(client, { length: bytes.length, metadata: { filename: uniqueName('watched') } });
    const connection = await openAppend(client, upload.path, { offset: 0, length: bytes.length });
    let [sent, last] = [0, 0];
    for (let at = 0; at < bytes.length - 1; at += 500_000) {
      sent = Math.min(at + 500_000, bytes.length - 1);
      await connection.send(bytes.subarray(at, sent));
      const begun = performance.now();
      const offset = await offsetOf(client, upload.path);
      expect(performance.now() - begun).toBeLessThan(1_500);
      expect(offset).toBeGreaterThanOrEqual(last);
      expect(offset).toBeLessThanOrEqual(sent);
      last = offset;
    }
    await connection.send(bytes.subarray(sent));
    const answer = await connection.answer();
    connection.cut();
    expect([answer.status, answer.headers['upload-offset']]).toEqual([204, String(bytes.length)]);
    expect(expectStatus(await finalize(client, upload), 201).json['sha256']).toBe(sha256(bytes));
  });

  test('finalize while the last bytes still arrive is refused or whole, never short', async () => {
    const bytes = randomBytes(3 * megabyte);
    const upload = await makeUpload(client, { length: bytes.length, metadata: { filename: uniqueName('early') } });
    const connection = await openAppend(client, upload.path, { offset: 0, length: bytes.length });
    await connection.send(bytes.subarray(0, 2 * megabyte));
    const early = await finalize(client, upload);
    expect([409, 423]).toContain(early.status);
    connection.cut();
    await until(async () =>
      (await offsetOf(client, upload.path)) === bytes.length ? true : (await resume(upload.path, bytes)) >= 0,
    );
    expect(expectStatus(await finalize(client, upload), 201).json['sha256']).toBe(sha256(bytes));
  });
});

describe('a body longer than the upload', () => {
  let client: Client;

  beforeAll(async () => {
    client = await admin();
  });

  test('T30 with a Content-Length it is 413 and nothing is taken', async () => {
    const { path } = await makeUpload(client, { length: 4 });
    expectTusProblem(await append(client, path, 0, Buffer.from('five!')), 413, 'payload_too_large');
    expect(await offsetOf(client, path)).toBe(0);
  });

  test.each([1, 3 * megabyte])(
    'T30 chunked and %d too long it is 413, and the offset stays within the length',
    async (excess) => {
      const length = megabyte + 10;
      const upload = await makeUpload(client, { length, metadata: { filename: uniqueName('long') } });
      const bytes = randomBytes(length + excess);
      const connection = await openAppend(client, upload.path, { offset: 0 });
      const sending = (async () => {
        for (let at = 0; at < bytes.length; at += 400_000) await connection.sendChunk(bytes.subarray(at, at + 400_000));
        await connection.sendChunk(Buffer.alloc(0));
      })().catch(() => undefined);
      const answer = await connection.answer();
      await sending;
      connection.cut();
      expect([400, 413]).toContain(answer.status);
      const offset = await offsetOf(client, upload.path);
      expect(offset).toBeLessThanOrEqual(length);
      if (offset < length) expectStatus(await append(client, upload.path, offset, bytes.subarray(offset, length)), 204);
      const file = expectStatus(await finalize(client, upload), 201).json;
      expect(file).toMatchObject({ size: length, sha256: sha256(bytes.subarray(0, length)) });
    },
  );
});

describe('tus 1.0.0, termination', () => {
  let client: Client;
  const gone = [404, 410];

  beforeAll(async () => {
    client = await admin();
  });

  test('X01 DELETE is 204, and the upload is gone for every method', async () => {
    const upload = await makeUpload(client, {
      length: 8,
      metadata: { filename: uniqueName() },
      body: Buffer.from('half'),
    });
    expectStatus(await client.tus('DELETE', upload.path), 204);
    const after: Answer[] = [
      await client.tus('HEAD', upload.path),
      await append(client, upload.path, 4, Buffer.from('more')),
      await client.tus('DELETE', upload.path),
      await finalize(client, upload),
      await client.get(`/api/uploads/${upload.id}`),
    ];
    for (const answer of after) {
      expect(gone).toContain(answer.status);
      expect(answer.headers.get('upload-offset')).toBeNull();
    }
  });

  test('X01 a complete upload that was not finalized can be ended too', async () => {
    const upload = await completeUpload(client, Buffer.from('full'), { filename: uniqueName() });
    expectStatus(await client.tus('DELETE', upload.path), 204);
    expect(gone).toContain((await finalize(client, upload)).status);
  });

  test('X03 DELETE during a PATCH ends the PATCH with an error and leaves nothing', async () => {
    const upload = await makeUpload(client, { length: 4 * megabyte });
    const connection = await openAppend(client, upload.path, { offset: 0, length: 4 * megabyte });
    await connection.send(randomBytes(megabyte + 1));
    await until(async () => (await offsetOf(client, upload.path)) > 0);
    const terminated = await until(async () => {
      const answer = await client.tus('DELETE', upload.path);
      return answer.status === 423 ? null : answer;
    });
    expectStatus(terminated, 204);
    const answer = await connection.answerOrClose();
    expect(answer?.status ?? 500).toBeGreaterThanOrEqual(400);
    connection.cut();
    expect(gone).toContain((await client.tus('HEAD', upload.path)).status);
  });

  test('X04 DELETE after finalize is refused and the file stays', async () => {
    const upload = await completeUpload(client, Buffer.from('stays'), { filename: uniqueName('stays') });
    const file = expectStatus(await finalize(client, upload), 201).json;
    expectTusProblem(await client.tus('DELETE', upload.path), 409, 'state_conflict');
    expect((await contentOf(client, file['id'])).toString()).toBe('stays');
    expectStatus(await finalize(client, upload), 200);
  });
});
