import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expectStatus, logIn, sha256, until } from '../support/client.ts';
import type { Answer, Client } from '../support/client.ts';
import { childrenOf } from '../support/crash-check.ts';
import { FaultReport } from '../support/fault-report.ts';
import { expectProblem } from '../support/problems.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { attachStrace, noStrace, oneThreadForFiles } from '../support/strace.ts';
import { startSystem, uniqueName } from '../support/system.ts';
import type { Mode, System } from '../support/system.ts';
import { append, contentOf, finalize, makeUpload, offsetOf } from '../support/uploads.ts';
import type { MadeUpload } from '../support/uploads.ts';

const size = 700_000;
const report = new FaultReport('R04 a sync that fails voids the copy');
const maybe = noStrace === null ? test : test.skip;
if (noStrace !== null) report.leftOut('all', noStrace);
afterAll(() => report.print());

describe.each<Mode>(['standalone', 'services'])('R04 a sync that fails, %s', (mode) => {
  const random = new Random(chooseSeed());
  let system: System;
  let client: Client;
  let folder: string;
  let directory: string;
  let bytes: Buffer;
  let upload: MadeUpload;

  beforeAll(async () => {
    if (noStrace !== null) return;
    process.stderr.write(`fsync, ${mode}: STOWAGE_TEST_SEED=${random.seed}\n`);
    folder = await mkdtemp(join(tmpdir(), 'stowage-faults-'));
    system = await startSystem(mode, { ...oneThreadForFiles, STOWAGE_LOG_LEVEL: 'error' });
    client = await logIn(system.url);
    directory = String((await client.makeDirectory('syncs'))['id']);
  });

  afterAll(async () => {
    if (noStrace !== null) return;
    await system?.close();
    await rm(folder, { recursive: true, force: true });
  });

  async function newUpload(): Promise<void> {
    bytes = random.bytes(size);
    const metadata = { filename: uniqueName(), directory_id: directory };
    upload = await makeUpload(client, { length: size, metadata });
  }

  /** What `work` was answered while every sync from the `first` one on, or just that one, fails. Checks what followed. */
  async function whileSyncsFail(call: string, when: string, work: () => Promise<Answer>): Promise<Answer> {
    const log = join(folder, uniqueName());
    const tracer = await attachStrace(await system.pidOf('backend-registry'), {
      calls: [call],
      beside: ['openat', 'close', 'ftruncate', call === 'fsync' ? 'fdatasync' : 'fsync'],
      inject: `error=EIO:when=${when}`,
      log,
    });
    const answer = await work();
    await tracer.detach();
    const seen = await readFile(log, 'utf8');
    expect(seen).toContain('EIO (Input/output error) (INJECTED)');
    expect(retriedSyncs(seen)).toEqual([]);
    return answer;
  }

  /** Resumes from what HEAD tells, and finalizes: the right bytes must come out. */
  async function resume(): Promise<number> {
    const from = await until(() => offsetOf(client, upload.path).then((offset) => ({ offset })));
    if (from.offset < size)
      await until(
        async () => (await append(client, upload.path, from.offset, bytes.subarray(from.offset))).status === 204,
      );
    const file = await until(async () => {
      const answer = await finalize(client, upload);
      return answer.status === 201 || answer.status === 200 ? answer.json : null;
    });
    expect(sha256(await contentOf(client, String(file['id'])))).toBe(sha256(bytes));
    return from.offset;
  }

  maybe('of a body is not acknowledged, what it held is void, and the upload goes on from before', async () => {
    await newUpload();
    expectStatus(await append(client, upload.path, 0, bytes.subarray(0, 1000)), 204);
    const rest = bytes.subarray(1000);
    const answer = await whileSyncsFail('fdatasync', '1', () => append(client, upload.path, 1000, rest));
    expectProblem(answer, 503, 'unavailable');
    expect(await offsetOf(client, upload.path)).toBe(1000);
    report.add(`${mode}, body`, { answer: answer.status, 'resumed at': await resume() });
  });

  maybe('of content before it is sealed makes no file, and the upload goes on from what is durable', async () => {
    await newUpload();
    expectStatus(await append(client, upload.path, 0, bytes), 204);
    // A process that knows nothing of what an earlier one made durable.
    await system.kill();
    await system.restart();
    const before = (await namesThere()).length;
    const answer = await whileSyncsFail('fdatasync', '1', () => finalize(client, upload));
    expectProblem(answer, 503, 'unavailable');
    expect(await namesThere()).toHaveLength(before);
    report.add(`${mode}, seal`, { answer: answer.status, 'resumed at': await resume() });
  });

  maybe.each([1, 2])('of a folder, the %d. of a finalize, is not acknowledged either', async (time) => {
    await newUpload();
    expectStatus(await append(client, upload.path, 0, bytes), 204);
    const before = (await namesThere()).length;
    const answer = await whileSyncsFail('fsync', String(time), () => finalize(client, upload));
    expectProblem(answer, 503, 'unavailable');
    expect(await namesThere()).toHaveLength(before);
    report.add(`${mode}, folder ${time}`, { answer: answer.status, 'resumed at': await resumeSealed() });
  });

  maybe('again and again is refused again and again, and leaves no file, until the disk is well', async () => {
    await newUpload();
    const before = (await namesThere()).length;
    const statuses: number[] = [];
    await whileSyncsFail('fdatasync', '1+', async () => {
      for (let attempt = 0; attempt < 3; attempt += 1) {
        const from = await client.tus('HEAD', upload.path);
        const offset = from.status === 200 ? Number(from.headers.get('upload-offset')) : 0;
        const answer = await append(client, upload.path, offset, bytes.subarray(offset));
        statuses.push(answer.status);
      }
      return finalize(client, upload);
    });
    expect(statuses.every((status) => status === 503 || status === 409)).toBe(true);
    expect(statuses).toContain(503);
    expect(await namesThere()).toHaveLength(before);
    report.add(`${mode}, every sync`, { answers: statuses.join(' '), 'resumed at': await resume() });
  });

  async function namesThere(): Promise<string[]> {
    return (await childrenOf(client, directory)).map((file) => String(file['name']));
  }

  /** As resume, for content that may have been moved already: then HEAD has nothing more to tell. */
  async function resumeSealed(): Promise<number> {
    const answer = await until(async () => {
      const again = await finalize(client, upload);
      return again.status === 503 ? null : again;
    });
    expect([200, 201]).toContain(answer.status);
    expect(sha256(await contentOf(client, String(answer.json['id'])))).toBe(sha256(bytes));
    return size;
  }
});

/** Syncs of a descriptor whose last sync failed, with nothing cut off in between: the system has dropped what failed. */
function retriedSyncs(log: string): string[] {
  const failed = new Set<string>();
  const retried: string[] = [];
  for (const line of log.split('\n')) {
    const [, call = '', descriptor = ''] = /^\d+ +(\w+)\((\d+<[^>]*>)/.exec(line) ?? [];
    if (call === 'close' || call === 'ftruncate') failed.delete(descriptor);
    if (call !== 'fsync' && call !== 'fdatasync') continue;
    if (failed.has(descriptor)) retried.push(line);
    if (line.includes('EIO')) failed.add(descriptor);
  }
  return retried;
}
