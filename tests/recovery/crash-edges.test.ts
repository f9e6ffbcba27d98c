import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { createHash, randomBytes } from 'node:crypto';
import { expectStatus, logIn, sha256, until } from '../support/client.ts';
import type { Client } from '../support/client.ts';
import { attachStrace, noStrace } from '../support/strace.ts';
import { startSystem, uniqueName } from '../support/system.ts';
import type { Mode, System } from '../support/system.ts';
import { append, completeUpload, contentOf, finalize, makeUpload, offsetOf, openAppend } from '../support/uploads.ts';
import { blobHashes, childrenOf, stagedIn } from '../support/crash-check.ts';

const megabyte = 1024 * 1024;

describe.each<Mode>(['standalone', 'services'])('kill -9 at a chosen moment, %s', (mode) => {
  let system: System;
  let client: Client;

  beforeAll(async () => {
    system = await startSystem(mode, { STOWAGE_UPLOAD_LEASE: '2s' });
    client = await logIn(system.url);
  });

  afterAll(() => system?.close());

  async function crash(): Promise<void> {
    await system.kill();
    await system.restart();
  }

  test('K06 of a body with a checksum that was not whole at the crash nothing counts', async () => {
    const bytes = randomBytes(5 * megabyte);
    const upload = await makeUpload(client, { length: bytes.length, metadata: { filename: uniqueName() } });
    expectStatus(await append(client, upload.path, 0, bytes.subarray(0, 100)), 204);
    const rest = bytes.subarray(100);
    const checksum: readonly [string, string] = [
      'upload-checksum',
      `sha256 ${createHash('sha256').update(rest).digest('base64')}`,
    ];
    const connection = await openAppend(client, upload.path, { offset: 100, length: rest.length, headers: [checksum] });
    await connection.send(rest.subarray(0, 4 * megabyte));
    await until(async () => (await offsetOf(client, upload.path)) === 100);
    await crash();
    connection.cut();
    expect(await offsetOf(client, upload.path)).toBe(100);
    // The writer that died does not block the next one for longer than its lease.
    await until(
      async () => (await append(client, upload.path, 100, rest, { 'upload-checksum': checksum[1] })).status === 204,
    );
    expect(expectStatus(await finalize(client, upload), 201).json['sha256']).toBe(sha256(bytes));
  });

  test('an offset that HEAD told while a body was arriving holds after the crash', async () => {
    const bytes = randomBytes(6 * megabyte);
    const upload = await makeUpload(client, { length: bytes.length, metadata: { filename: uniqueName() } });
    const connection = await openAppend(client, upload.path, { offset: 0, length: bytes.length });
    await connection.send(bytes.subarray(0, 4 * megabyte + 5000));
    const told = await until(async () => (await offsetOf(client, upload.path)) || null);
    await crash();
    connection.cut();
    const kept = await offsetOf(client, upload.path);
    expect(kept).toBeGreaterThanOrEqual(told);
    expect(kept).toBeLessThanOrEqual(4 * megabyte + 5000);
    await until(async () => (await append(client, upload.path, kept, bytes.subarray(kept))).status === 204);
    expect(expectStatus(await finalize(client, upload), 201).json['sha256']).toBe(sha256(bytes));
  });
});

/** Steps of a finalize as the system sees them: the process is killed as it makes the n-th such call. */
const steps = [
  { call: 'rename', times: [1] },
  { call: 'fsync', times: [1, 2] },
  { call: 'write', times: [1, 2, 3, 4, 5, 6, 7, 8, 9] },
].flatMap(({ call, times }) => times.map((time) => ({ call, time })));

(noStrace === null ? describe : describe.skip)('F05 kill -9 at each step of a finalize', () => {
  let system: System;
  let client: Client;
  let directory: string;
  const finished: string[] = [];

  beforeAll(async () => {
    system = await startSystem('standalone', { STOWAGE_JOB_INTERVAL: '1s', STOWAGE_JOB_LEASE: '2s' });
    client = await logIn(system.url);
    directory = String((await client.makeDirectory('steps'))['id']);
  });

  afterAll(() => system?.close());

  /** Kills the process when one of its threads makes a call for the n-th time. */
  async function killAt(call: string, time: number): Promise<{ detach(): Promise<void> }> {
    return attachStrace(await system.pidOf('gateway'), { calls: [call], inject: `signal=SIGKILL:when=${time}` });
  }

  /** Whether the process is gone; waits until it is known. */
  async function died(): Promise<boolean> {
    return until(async () => {
      if (system.launcher.exitCode !== null || system.launcher.signalCode !== null) return 'dead' as const;
      const health = await client.get('/api/system/health').catch(() => null);
      return health?.status === 200 ? ('alive' as const) : null;
    }).then((state) => state === 'dead');
  }

  test.each(steps)('$call $time: old or new, never between; the same file comes out', async ({ call, time }) => {
    const bytes = randomBytes(100_000);
    const name = `${call}-${time}`;
    const upload = await completeUpload(client, bytes, {
      filename: name,
      directory_id: directory,
      on_conflict: 'rename',
    });
    const tracer = await killAt(call, time);
    const first = await finalize(client, upload).catch(() => null);
    await tracer.detach();
    if (await died()) await system.restart();
    else expect(first?.status).toBe(201);
    const again = await until(async () => {
      const answer = await finalize(client, upload);
      return answer.status === 503 || answer.status === 423 ? null : answer;
    });
    expect([200, 201]).toContain(again.status);
    if (first) expect(again.json['id']).toBe(first.json['id']);
    expect(again.json).toMatchObject({ name, sha256: sha256(bytes) });
    expect(sha256(await contentOf(client, again.json['id']))).toBe(sha256(bytes));
    finished.push(sha256(bytes));
    expect(await childrenOf(client, directory)).toHaveLength(finished.length);
  });

  test('nothing but the content of the files is left on the disk', async () => {
    expect(await stagedIn(system.dataDir)).toEqual([]);
    expect(await blobHashes(system.dataDir)).toEqual(finished.sort());
  });
});
