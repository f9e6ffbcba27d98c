import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { createHash, randomBytes } from 'node:crypto';
import type { Hash } from 'node:crypto';
import { once } from 'node:events';
import { request } from 'node:http';
import type { IncomingMessage } from 'node:http';
import { expectStatus, logIn } from '../support/client.ts';
import type { Client } from '../support/client.ts';
import { MemoryWatch } from '../support/process-memory.ts';
import { startSystem, uniqueName } from '../support/system.ts';
import type { Mode, System } from '../support/system.ts';
import { finalize, makeUpload, offsetType } from '../support/uploads.ts';

const mebibyte = 1024 * 1024;
/** 1 GiB, or more by hand. */
const streamBytes = Number(process.env['STOWAGE_TEST_STREAM_BYTES'] ?? 1024 * mebibyte);
const limitMs = 120_000 + (streamBytes / mebibyte) * 60;
const noise = randomBytes(mebibyte);

/** The content at MiB `index`: noise with its number in front, so that no two pieces are the same. */
function pieceAt(index: number): Buffer {
  const piece = Buffer.from(noise);
  piece.writeUInt32BE(index);
  return piece;
}

describe.each<Mode>(['standalone', 'services'])('memory does not grow with a file, %s', (mode) => {
  let system: System;
  let client: Client;
  let watch: MemoryWatch;

  beforeAll(async () => {
    system = await startSystem(mode);
    client = await logIn(system.url);
    const names = mode === 'standalone' ? ['gateway'] : ['gateway', 'upload', 'backend-registry', 'catalog'];
    const pids = await Promise.all(
      names.map(async (name): Promise<[string, number]> => [name, await system.pidOf(name)]),
    );
    // Warm: code is compiled and pools are open.
    for (let round = 0; round < 3; round += 1) await client.putFile(uniqueName('warm'), randomBytes(4 * mebibyte));
    watch = await MemoryWatch.start(new Map(pids));
  });

  afterAll(async () => {
    watch?.stop();
    await system?.close();
  });

  const authorised = (): Record<string, string> => ({ authorization: `Bearer ${client.token ?? ''}` });

  async function upload(path: string, bytes: number): Promise<Hash> {
    const hash = createHash('sha256');
    const call = request(`${client.url}${path}`, {
      method: 'PATCH',
      agent: false,
      headers: {
        ...authorised(),
        'tus-resumable': '1.0.0',
        'upload-offset': '0',
        'content-type': offsetType,
        'content-length': bytes,
      },
    });
    const answered = once(call, 'response');
    for (let sent = 0; sent < bytes; sent += mebibyte) {
      const piece = pieceAt(sent / mebibyte).subarray(0, bytes - sent);
      hash.update(piece);
      if (!call.write(piece)) await once(call, 'drain');
    }
    call.end();
    const [response]: IncomingMessage[] = await answered;
    response?.resume();
    expect([response?.statusCode, response?.headers['upload-offset']]).toEqual([204, String(bytes)]);
    return hash;
  }

  async function openDownload(fileId: string): Promise<IncomingMessage> {
    const call = request(`${client.url}/api/files/${fileId}/download`, { agent: false, headers: authorised() });
    call.end();
    const [response]: IncomingMessage[] = await once(call, 'response');
    if (!response) throw new Error('no answer');
    expect(response.statusCode).toBe(200);
    return response;
  }

  test(
    `a stream of ${streamBytes / mebibyte} MiB goes in by one PATCH and out again within 150 MiB beyond idle`,
    async () => {
      const made = await makeUpload(client, { length: streamBytes, metadata: { filename: uniqueName('stream') } });
      const begun = performance.now();
      const sent = (await upload(made.path, streamBytes)).digest('hex');
      const uploaded = performance.now();
      const file = expectStatus(await finalize(client, made), 201).json;
      const finalized = performance.now();
      expect(file).toMatchObject({ size: streamBytes, sha256: sent });
      const up = await watch.growth();
      const hash = createHash('sha256');
      for await (const piece of await openDownload(file['id'])) hash.update(piece);
      const downloaded = performance.now();
      expect(hash.digest('hex')).toBe(sent);
      const down = await watch.growth();
      const rate = (ms: number): number => Math.round(streamBytes / mebibyte / (ms / 1000));
      report({
        mode,
        mebibytes: streamBytes / mebibyte,
        upload: `${rate(uploaded - begun)} MiB/s`,
        finalize: `${Math.round(finalized - uploaded)} ms`,
        download: `${rate(downloaded - finalized)} MiB/s`,
        growth_after_upload: up,
        growth_after_download: down,
      });
      for (const beyond of Object.values(down)) expect(beyond).toBeLessThan(150);
    },
    limitMs,
  );

  test('a reader of 100 KiB/s holds less than 30 MiB', async () => {
    const size = 200 * mebibyte;
    const made = await makeUpload(client, { length: size, metadata: { filename: uniqueName('slow') } });
    await upload(made.path, size);
    const file = expectStatus(await finalize(client, made), 201).json;
    // Read fast once, so that what fast reading needs is not counted.
    for await (const piece of await openDownload(file['id'])) void piece;
    await watch.restart();
    const response = await openDownload(file['id']);
    let read = 0;
    const end = performance.now() + 5_000;
    while (performance.now() < end) {
      const piece: Buffer | null = response.read(Math.min(10 * 1024, response.readableLength));
      read += piece?.length ?? 0;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    response.destroy();
    expect(read).toBeLessThan(600 * 1024);
    const growth = await watch.growth();
    report({ mode, slow_reader: growth });
    expect(read).toBeGreaterThan(300 * 1024);
    for (const beyond of Object.values(growth)) expect(beyond).toBeLessThan(30);
  }, 120_000);
});

/** For whoever runs it by hand: the figures. */
function report(figures: Record<string, unknown>): void {
  process.stderr.write(`${JSON.stringify(figures)}\n`);
}
