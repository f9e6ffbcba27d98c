import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { expectStatus, logIn, logInAs, sha256, until } from '../support/client.ts';
import type { Client } from '../support/client.ts';
import { mode } from '../support/contract.ts';
import { startOwnSystem } from '../support/own-system.ts';
import type { OwnSystem } from '../support/own-system.ts';
import { RawConnection } from '../support/raw-http.ts';
import { uniqueName } from '../support/system.ts';
import {
  append,
  createUpload,
  expectTusProblem,
  finalize,
  makeUpload,
  offsetOf,
  offsetType,
  openAppend,
} from '../support/uploads.ts';
import type { MadeUpload } from '../support/uploads.ts';

const megabyte = 1024 * 1024;
const publicUrl = 'https://files.example.com';

describe('limits of uploads', () => {
  let system: OwnSystem;
  let root: Client;

  beforeAll(async () => {
    system = await startOwnSystem(mode(), {
      STOWAGE_UPLOADS_PER_USER: '5',
      STOWAGE_APPENDS_PER_USER: '2',
      STOWAGE_IDLE_TIMEOUT: '3s',
      STOWAGE_PUBLIC_URL: publicUrl,
      STOWAGE_MAX_UPLOAD_BYTES: '8MiB',
    });
    root = await logIn(system.url);
  });

  afterAll(() => system?.close());

  const editor = (): Promise<Client> => logInAs(root, 'editor', uniqueName('editor'));

  /** The path of an upload whose Location is absolute. */
  async function made(client: Client, length: number, body?: Buffer): Promise<MadeUpload> {
    return makeUpload(client, { length, metadata: { filename: uniqueName() }, ...(body ? { body } : {}) });
  }

  test('Location is absolute under STOWAGE_PUBLIC_URL, whatever the Host header says', async () => {
    const { answer, id } = await made(await editor(), 1);
    expect(answer.headers.get('location')).toBe(`${publicUrl}/files/${id}`);
  });

  test('Tus-Max-Size is the setting, and one byte more is 413', async () => {
    const client = await editor();
    expect((await client.call('OPTIONS', '/files')).headers.get('tus-max-size')).toBe(String(8 * megabyte));
    expectStatus(await createUpload(client, { length: 8 * megabyte }), 201);
    expectTusProblem(await createUpload(client, { length: 8 * megabyte + 1 }), 413, 'payload_too_large');
  });

  test('a deferred upload can not grow past the maximum either', async () => {
    const client = await editor();
    const { path } = await makeUpload(client, { length: null });
    const long = await append(client, path, 0, Buffer.alloc(8 * megabyte + 1));
    expectTusProblem(long, 413, 'payload_too_large');
    expect(await offsetOf(client, path)).toBe(0);
  });

  test('T32 one upload too many is 429 with Retry-After, for this user only, and an ended one makes room', async () => {
    const [client, other] = [await editor(), await editor()];
    const uploads = await Promise.all(Array.from({ length: 5 }, () => made(client, 4)));
    const refused = await createUpload(client, { length: 4 });
    expectTusProblem(refused, 429, 'rate_limited');
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
    expectStatus(await createUpload(other, { length: 4 }), 201);
    const [first, second] = uploads;
    if (!first || !second) throw new Error('five were made');
    expectStatus(await client.tus('DELETE', first.path), 204);
    expectStatus(await createUpload(client, { length: 4 }), 201);
    expect((await createUpload(client, { length: 4 })).status).toBe(429);
    expectStatus(await append(client, second.path, 0, Buffer.from('full')), 204);
    expectStatus(await finalize(client, second), 201);
    expectStatus(await createUpload(client, { length: 4 }), 201);
  });

  test('T32 the limit holds when all come at once', async () => {
    const client = await editor();
    const answers = await Promise.all(Array.from({ length: 20 }, () => createUpload(client, { length: 4 })));
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(5);
    expect(answers.filter(({ status }) => status === 429)).toHaveLength(15);
  });

  test('a running PATCH too many is 429 with Retry-After, and the next one goes when one has ended', async () => {
    const client = await editor();
    const size = 3 * megabyte;
    const [first, second, third] = [await made(client, size), await made(client, size), await made(client, 4)];
    const running: RawConnection[] = [];
    for (const { path } of [first, second]) {
      const connection = await openAppend(client, path, { offset: 0, length: size });
      await connection.send(randomBytes(megabyte + 1000));
      await until(async () => (await offsetOf(client, path)) > 0);
      running.push(connection);
    }
    const refused = await append(client, third.path, 0, Buffer.alloc(0));
    expectTusProblem(refused, 429, 'rate_limited');
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(await offsetOf(client, third.path)).toBe(0);
    running[0]?.cut();
    await until(async () => (await append(client, third.path, 0, Buffer.from('goes'))).status === 204);
    running[1]?.cut();
  });

  test('C12 a body that stands still is given up: the connection is closed and what arrived is kept', async () => {
    const client = await editor();
    const bytes = randomBytes(2 * megabyte);
    const upload = await made(client, bytes.length);
    const connection = await openAppend(client, upload.path, { offset: 0, length: bytes.length });
    await connection.send(bytes.subarray(0, megabyte + 500_000));
    await connection.closed(10_000);
    const kept = await until(async () => {
      const offset = await offsetOf(client, upload.path);
      return (await append(client, upload.path, offset, Buffer.alloc(0))).status === 204 ? offset : null;
    });
    expect(kept).toBeGreaterThanOrEqual(500_000);
    expect(kept).toBeLessThanOrEqual(megabyte + 500_000);
    expectStatus(await append(client, upload.path, kept, bytes.subarray(kept)), 204);
    expect(expectStatus(await finalize(client, upload), 201).json['sha256']).toBe(sha256(bytes));
  });

  test('a body that arrives slowly, but arrives, is not given up', async () => {
    const client = await editor();
    const upload = await made(client, 6);
    const connection = await openAppend(client, upload.path, { offset: 0, length: 6 });
    for (const piece of ['s', 'l', 'o', 'w', 'l', 'y']) {
      await connection.send(piece);
      await new Promise((resolve) => setTimeout(resolve, 400));
    }
    const answer = await connection.answer();
    connection.cut();
    expect([answer.status, answer.headers['upload-offset']]).toEqual([204, '6']);
  });

  test('W04 a POST that breaks off midway leaves the service as it was: no file, and no more than one open upload', async () => {
    const client = await editor();
    for (let cut = 0; cut < 3; cut += 1) {
      const connection = await RawConnection.open(system.url);
      await connection.request('POST', '/files', [
        ['authorization', `Bearer ${client.token ?? ''}`],
        ['tus-resumable', '1.0.0'],
        ['upload-length', '2000000'],
        ['content-type', offsetType],
        ['content-length', '2000000'],
      ]);
      await connection.send(randomBytes(600_000 * (cut + 1)));
      connection.cut();
    }
    const metadata = { filename: uniqueName('after-cuts') };
    const upload = await until(async () => {
      const answer = await createUpload(client, { length: 4, metadata, body: Buffer.from('fine') });
      return answer.status === 201 ? answer : null;
    });
    const id = upload.headers.get('location')?.split('/').at(-1) ?? '';
    expect(expectStatus(await finalize(client, { id }), 201).json['sha256']).toBe(sha256('fine'));
  });
});
