import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { logIn, until, untilReady } from '../support/client.ts';
import type { Client } from '../support/client.ts';
import { blobHashes, checkFiles, checkTables, stagedIn } from '../support/crash-check.ts';
import { CrashClient } from '../support/crash-client.ts';
import { Journal } from '../support/crash-journal.ts';
import { FaultReport } from '../support/fault-report.ts';
import { faultSizes } from '../support/fault-sizes.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { isGone } from '../support/processes.ts';
import { attachStrace, noStrace, oneThreadForFiles } from '../support/strace.ts';
import { startSystem } from '../support/system.ts';
import type { Mode, System } from '../support/system.ts';

/** What the upload and finalize path asks of the system, and how each may fail. Not `write`: sockets are written by it too. */
const faults: Record<string, readonly string[]> = {
  openat: ['EIO', 'ENOSPC', 'kill'],
  pwrite64: ['EIO', 'ENOSPC', 'EDQUOT', 'kill'],
  pwritev: ['EIO', 'ENOSPC', 'EDQUOT', 'kill'],
  fsync: ['EIO', 'ENOSPC', 'kill'],
  fdatasync: ['EIO', 'ENOSPC', 'kill'],
  rename: ['EIO', 'ENOSPC', 'kill'],
  unlink: ['EIO', 'kill'],
  mkdir: ['EIO', 'ENOSPC', 'kill'],
};
const calls = Object.keys(faults);

const settings = {
  ...oneThreadForFiles,
  STOWAGE_UPLOAD_LEASE: '2s',
  STOWAGE_UPLOAD_EXPIRY: '10s',
  STOWAGE_JOB_INTERVAL: '1s',
  STOWAGE_JOB_LEASE: '2s',
  STOWAGE_GC_GRACE: '1s',
  STOWAGE_LOG_LEVEL: 'error',
};

interface Fault {
  call: string;
  fault: string;
  time: number;
}

const report = new FaultReport('R03 every call of the upload and finalize path failed once');
afterAll(() => report.print());
if (noStrace !== null) report.leftOut('all', noStrace);

describe.each<Mode>(['standalone', 'services'])('R03 a call of the system that fails once, %s', (mode) => {
  const random = new Random(chooseSeed());
  let system: System;
  let client: Client;
  let folder: string;
  let directory: string;
  let journal: Journal;
  let files = 0;
  let happened = 0;

  beforeAll(async () => {
    if (noStrace !== null) return;
    process.stderr.write(`syscalls, ${mode}: STOWAGE_TEST_SEED=${random.seed}\n`);
    folder = await mkdtemp(join(tmpdir(), 'stowage-faults-'));
    journal = new Journal(join(folder, 'journal'));
    system = await startSystem(mode, settings);
    client = await logIn(system.url);
    directory = String((await client.makeDirectory('calls'))['id']);
  });

  afterAll(async () => {
    if (noStrace !== null) return;
    await system?.close();
    journal.close();
    await rm(folder, { recursive: true, force: true });
  });

  /** The same requests each time, as long as all goes well: random pieces, some of them with a checksum. */
  async function makeFile(excused: number[]): Promise<void> {
    files += 1;
    const needs = { directory, random: new Random(random.seed), journal, label: `${mode}-${files}` };
    await new CrashClient(client, needs, { excused, largest: 600_000 }).makeFile();
  }

  async function callsOfOneFile(): Promise<Map<string, number>> {
    const log = join(folder, 'calls');
    const tracer = await attachStrace(await system.pidOf('backend-registry'), { calls, log });
    await makeFile([]);
    await tracer.detach();
    const lines = (await readFile(log, 'utf8')).split('\n');
    const counts = calls.map((call): [string, number] => [
      call,
      lines.filter((line) => new RegExp(`^\\d+ +${call}\\(`).test(line)).length,
    ]);
    return new Map(counts);
  }

  function plan(counts: Map<string, number>): Fault[] {
    const all = calls.flatMap((call) =>
      Array.from({ length: counts.get(call) ?? 0 }, (_, index) => index + 1).flatMap((time) =>
        (faults[call] ?? []).map((fault) => ({ call, fault, time })),
      ),
    );
    const first = random.integer(0, faultSizes.callStep - 1);
    return all.filter((_, index) => index % faultSizes.callStep === first);
  }

  async function failOnce({ call, fault, time }: Fault): Promise<void> {
    const pid = await system.pidOf('backend-registry');
    const what = fault === 'kill' ? 'signal=SIGKILL' : `error=${fault}`;
    const log = join(folder, 'fault');
    const tracer = await attachStrace(pid, { calls: [call], inject: `${what}:when=${time}`, log });
    const made = makeFile(['ENOSPC', 'EDQUOT'].includes(fault) ? [507] : []).catch(() => undefined);
    if (fault === 'kill') await Promise.race([made, died(pid)]);
    else await made;
    await tracer.detach();
    if (/INJECTED|killed by SIGKILL/.test(await readFile(log, 'utf8'))) happened += 1;
    if (fault === 'kill' && mode === 'standalone' && (await died(pid, 0))) await system.restart();
    await made;
    await untilReady(client);
  }

  const maybe = noStrace === null ? test : test.skip;

  maybe('is a documented answer, costs nothing that was acknowledged, and leaves nothing half done', async () => {
    const counts = await callsOfOneFile();
    const planned = plan(counts);
    for (const fault of planned) {
      const before = journal.violations.length;
      await failOnce(fault);
      if (journal.violations.length > before) journal.violated(`that was ${JSON.stringify(fault)}`);
    }
    await system.kill();
    await system.restart();
    const judged = Journal.read(join(folder, 'journal'));
    const found = await checkFiles(client, directory, judged);
    await checkTables(system.databaseUrl, judged);
    report.add(mode, {
      'calls of one file': JSON.stringify(Object.fromEntries(counts)),
      faults: planned.length,
      happened,
      ok: judged.count('ok'),
      answers: JSON.stringify(journal.answers),
    });
    expect({ seed: random.seed, violations: judged.violations }).toEqual({ seed: random.seed, violations: [] });
    expect(judged.count('ok') + judged.count('unknown')).toBe(planned.length + 1);
    // Folders of blobs are made once, so a file may need fewer calls than the first one did.
    expect(happened).toBeGreaterThan(planned.length * 0.8);
    await until(async () => (await stagedIn(system.dataDir)).length === 0, 60_000);
    const hashes = found.map((file) => String(file['sha256'])).sort();
    await until(async () => (await blobHashes(system.dataDir)).length === hashes.length, 60_000).catch(() => undefined);
    expect(await blobHashes(system.dataDir)).toEqual(hashes);
  });
});

/** Whether the process is gone; waits up to `limitMs` for it. */
async function died(pid: number, limitMs = 60_000): Promise<boolean> {
  return until(() => isGone(pid), limitMs).catch(() => false);
}
