import { afterAll, afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { setTimeout as sleep } from 'node:timers/promises';
import { expectStatus, logIn, sha256, until } from '../support/client.ts';
import type { Answer, Client, Json } from '../support/client.ts';
import { childrenOf } from '../support/crash-check.ts';
import { FaultReport, timesOf } from '../support/fault-report.ts';
import { faultSizes } from '../support/fault-sizes.ts';
import { fillBytes, fillInodes } from '../support/fill-disk.ts';
import { mountTmpfs, noTmpfs } from '../support/mounts.ts';
import type { Mount } from '../support/mounts.ts';
import { expectProblem } from '../support/problems.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { startSystem, uniqueName } from '../support/system.ts';
import type { Mode, System } from '../support/system.ts';
import { append, completeUpload, contentOf, createUpload, finalize, makeUpload, offsetOf } from '../support/uploads.ts';

const kibibyte = 1024;
/** Promised is 1 s; a machine that is shared is given more. */
const refusalLimitMs = 3_000;
const recoveryLimitMs = 5_000;
const report = new FaultReport('R05 no room on the disk of staging and blobs');
const maybe = noTmpfs === null ? describe : describe.skip;
if (noTmpfs !== null) report.leftOut('all', noTmpfs);
afterAll(() => report.print());

interface Disk {
  what: string;
  options: string;
  /** Takes all that is left; gives how to give it back. */
  fill(disk: string): Promise<() => Promise<void>>;
}

const disks: Disk[] = [
  { what: 'bytes', options: 'size=24m', fill: fillBytes },
  { what: 'inodes', options: 'size=64m,nr_inodes=400', fill: fillInodes },
];

const modes: Mode[] = ['standalone', 'services'];
const plan = modes.flatMap((mode) => disks.map((disk) => ({ mode, ...disk })));

maybe.each(plan)('R05 a disk without $what for a while, $mode', ({ mode, what, options, fill }) => {
  const random = new Random(chooseSeed());
  let disk: Mount;
  let system: System;
  let client: Client;
  let directory: string;

  beforeEach(async () => {
    process.stderr.write(`full disk, ${what}, ${mode}: STOWAGE_TEST_SEED=${random.seed}\n`);
    disk = await mountTmpfs(options);
    system = await startSystem(mode, {
      STOWAGE_DATA_DIR: disk.path,
      // Refused by the disk itself, not by the look at what is left of it.
      STOWAGE_LOCAL_RESERVE: '0',
      STOWAGE_LOG_LEVEL: 'fatal',
    });
    client = await logIn(system.url);
    directory = String((await client.makeDirectory('room'))['id']);
  });

  afterEach(async () => {
    await system?.close();
    await disk?.close();
  });

  test('refuses uploads with 507 at once, reads on, stays ready, and takes uploads again without a restart', async () => {
    const metadata = (): Record<string, string> => ({ filename: uniqueName(), directory_id: directory });
    const kept = random.bytes(300 * kibibyte);
    const file = await client.putFile(uniqueName(), kept, { directory });
    const bytes = random.bytes(2_000 * kibibyte);
    const half = bytes.length / 2;
    const begun = await makeUpload(client, { length: bytes.length, metadata: metadata() });
    expectStatus(await append(client, begun.path, 0, bytes.subarray(0, half)), 204);
    const complete = await completeUpload(client, kept, metadata());
    const pids = await pidsOf();

    const giveBack = await fill(disk.path);
    const refusals: number[] = [];
    const endsAt = performance.now() + faultSizes.fullMs;
    do {
      await refused(refusals, () => createUpload(client, { length: bytes.length, metadata: metadata(), body: bytes }));
      if (what === 'bytes') {
        const offset = await offsetOf(client, begun.path);
        expect(offset).toBeGreaterThanOrEqual(half);
        await refused(refusals, () => append(client, begun.path, offset, bytes.subarray(offset)));
      }
      await checkReading(kept, file);
      await sleep(100);
    } while (performance.now() < endsAt);
    // What is there whole may become a file, or has to wait for a folder; it is never lost.
    expect([201, 507]).toContain((await finalize(client, complete)).status);

    await giveBack();
    const back = performance.now();
    const offset = await offsetOf(client, begun.path);
    await until(async () => (await append(client, begun.path, offset, bytes.subarray(offset))).status === 204);
    const recoveryMs = performance.now() - back;
    for (const [upload, content] of [[begun, bytes] as const, [complete, kept] as const]) {
      const made = await finalize(client, upload);
      expect([200, 201]).toContain(made.status);
      expect(sha256(await contentOf(client, String(made.json['id'])))).toBe(sha256(content));
    }
    await client.putFile(uniqueName(), kept, { directory });
    expect(await childrenOf(client, directory)).toHaveLength(4);
    expect(await pidsOf()).toEqual(pids);
    report.add(`${mode}, ${what}`, {
      refusals: refusals.length,
      'time of a refusal': timesOf(refusals),
      'recovery in ms': Math.round(recoveryMs),
    });
    expect(Math.max(...refusals)).toBeLessThan(refusalLimitMs);
    expect(recoveryMs).toBeLessThan(recoveryLimitMs);
  }, 900_000);

  async function refused(times: number[], call: () => Promise<Answer>): Promise<void> {
    const start = performance.now();
    const answer = await call();
    times.push(performance.now() - start);
    expectProblem(answer, 507, 'insufficient_storage');
  }

  /** What was there can be read, the service says that it is ready, and nothing half made is to be seen. */
  async function checkReading(kept: Buffer, file: Json): Promise<void> {
    expect(sha256(await contentOf(client, String(file['id'])))).toBe(sha256(kept));
    expectStatus(await client.get('/api/system/ready'), 200);
    expect((await childrenOf(client, directory)).map(({ id }) => String(id))).toEqual([file['id']]);
  }

  function pidsOf(): Promise<number[]> {
    return Promise.all(['gateway', 'upload', 'backend-registry', 'catalog'].map((service) => system.pidOf(service)));
  }
});
