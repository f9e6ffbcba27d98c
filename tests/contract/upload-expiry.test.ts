import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expectStatus, logIn, sha256, until } from '../support/client.ts';
import type { Client } from '../support/client.ts';
import { mode } from '../support/contract.ts';
import { startSystem, uniqueName } from '../support/system.ts';
import type { System } from '../support/system.ts';
import { append, completeUpload, contentOf, finalize, makeUpload, offsetOf, openAppend } from '../support/uploads.ts';

const expiryMs = 1_200;
const gone = [404, 410];

/** Uploads that live for a moment without a byte, and a look for expired ones twice a second. */
describe('expiry of uploads', () => {
  let system: System;
  let client: Client;

  beforeAll(async () => {
    system = await startSystem(mode(), { STOWAGE_UPLOAD_EXPIRY: `${expiryMs}ms`, STOWAGE_JOB_INTERVAL: '500ms' });
    client = await logIn(system.url);
  });

  afterAll(() => system?.close());

  const staged = (): Promise<string[]> => readdir(join(system.dataDir, 'backends/local/staging'));
  const blobs = async (): Promise<string[]> => {
    const folder = join(system.dataDir, 'backends/local/blobs');
    const entries = await readdir(folder, { recursive: true, withFileTypes: true });
    return entries.filter((entry) => entry.isFile()).map(({ name }) => name);
  };

  test('E03 an upload without a byte for the whole time is gone, and its space is free', async () => {
    const upload = await makeUpload(client, {
      length: 2_000_000,
      metadata: { filename: 'x' },
      body: randomBytes(1_000_000),
    });
    expect(await staged()).toContain(upload.id);
    const head = await until(async () => {
      const answer = await client.tus('HEAD', upload.path);
      return answer.status === 200 ? null : answer;
    });
    expect(gone).toContain(head.status);
    expect(head.headers.get('upload-offset')).toBeNull();
    expect(gone).toContain((await append(client, upload.path, 1_000_000, Buffer.from('late'))).status);
    expect(gone).toContain((await finalize(client, upload)).status);
    expect(gone).toContain((await client.tus('DELETE', upload.path)).status);
    await until(async () => !(await staged()).includes(upload.id));
  });

  test('E03 every byte puts the end off', async () => {
    const upload = await makeUpload(client, { length: 6, metadata: { filename: uniqueName() } });
    const begun = Date.now();
    for (let offset = 0; offset < 5; offset += 1) {
      await new Promise((resolve) => setTimeout(resolve, expiryMs * 0.6));
      expectStatus(await append(client, upload.path, offset, Buffer.from('x')), 204);
    }
    expect(Date.now() - begun).toBeGreaterThan(expiryMs);
    expectStatus(await append(client, upload.path, 5, Buffer.from('x')), 204);
    expectStatus(await finalize(client, upload), 201);
  });

  test('E03 an upload that is being written to does not expire, however slowly the bytes come', async () => {
    const upload = await makeUpload(client, { length: 5, metadata: { filename: uniqueName() } });
    const connection = await openAppend(client, upload.path, { offset: 0, length: 5 });
    for (const piece of ['s', 'l', 'o', 'w', '!']) {
      await new Promise((resolve) => setTimeout(resolve, expiryMs * 0.6));
      await connection.send(piece);
    }
    expect((await connection.answer()).status).toBe(204);
    connection.cut();
    expectStatus(await finalize(client, upload), 201);
  });

  test('E04 an upload that was finished but not finalized expires too', async () => {
    const upload = await completeUpload(client, randomBytes(100_000), { filename: uniqueName() });
    await until(async () => !(await staged()).includes(upload.id));
    expect(gone).toContain((await finalize(client, upload)).status);
  });

  test('E05 of finalize and expiry one wins wholly', async () => {
    const bytes = randomBytes(50_000);
    const outcomes = await Promise.all(
      Array.from({ length: 24 }, async (_, index) => {
        const upload = await completeUpload(client, bytes, { filename: uniqueName('raced') });
        await new Promise((resolve) => setTimeout(resolve, expiryMs - 120 + index * 10));
        return { upload, answer: await finalize(client, upload) };
      }),
    );
    for (const { upload, answer } of outcomes) {
      if (answer.status === 201) expect(sha256(await contentOf(client, answer.json['id']))).toBe(sha256(bytes));
      else expect(gone).toContain(answer.status);
      await until(async () => !(await staged()).includes(upload.id));
    }
    // What was finalized stays when the upload itself is forgotten.
    for (const { answer } of outcomes.filter((outcome) => outcome.answer.status === 201)) {
      expect(sha256(await contentOf(client, answer.json['id']))).toBe(sha256(bytes));
    }
  });

  test('E05 of PATCH and expiry one wins wholly', async () => {
    await Promise.all(
      Array.from({ length: 16 }, async (_, index) => {
        const upload = await makeUpload(client, {
          length: 8,
          metadata: { filename: uniqueName() },
          body: Buffer.from('1234'),
        });
        await new Promise((resolve) => setTimeout(resolve, expiryMs - 80 + index * 10));
        const patched = await append(client, upload.path, 4, Buffer.from('5678'));
        if (patched.status === 204) {
          expect(await offsetOf(client, upload.path)).toBe(8);
          expect(expectStatus(await finalize(client, upload), 201).json['sha256']).toBe(sha256('12345678'));
        } else expect(gone).toContain(patched.status);
      }),
    );
  });

  test('X02 and T32 DELETE, broken bodies and forgotten uploads leave staging empty, and no blob without a file', async () => {
    const ended = await makeUpload(client, { length: 1_000_000, body: randomBytes(600_000) });
    expectStatus(await client.tus('DELETE', ended.path), 204);
    await until(async () => !(await staged()).includes(ended.id));
    await Promise.all(
      Array.from({ length: 12 }, async () => {
        const { path } = await makeUpload(client, { length: 1_000_000 });
        const connection = await openAppend(client, path, { offset: 0, length: 1_000_000 });
        await connection.send(randomBytes(300_000));
        connection.cut();
      }),
    );
    await until(async () => (await staged()).length === 0);
    const { items } = expectStatus(await client.get('/api/directories/root/children?limit=1000'), 200).json;
    expect(await blobs()).toHaveLength(items.length);
  });
});
