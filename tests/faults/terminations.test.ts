import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { logIn, until, untilReady } from '../support/client.ts';
import type { Client } from '../support/client.ts';
import { checkFiles, checkTables, stagedIn } from '../support/crash-check.ts';
import { CrashClient } from '../support/crash-client.ts';
import { Journal } from '../support/crash-journal.ts';
import { FaultReport, timesOf } from '../support/fault-report.ts';
import { faultSizes } from '../support/fault-sizes.ts';
import { isGone } from '../support/processes.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { startSystem } from '../support/system.ts';
import type { System } from '../support/system.ts';

const clients = 5;
/** From SIGTERM to the end of the process: what R21 promises. */
const limitMs = 30_000;
const services = ['gateway', 'catalog', 'upload', 'backend-registry', 'placement', 'export'];

const random = new Random(chooseSeed());
const report = new FaultReport('R21 SIGTERM under load');
let folder: string;
let journal: Journal;
let system: System;
let client: Client;
let directory: string;

beforeAll(async () => {
  process.stderr.write(`terminations: STOWAGE_TEST_SEED=${random.seed}\n`);
  folder = await mkdtemp(join(tmpdir(), 'stowage-faults-'));
  journal = new Journal(join(folder, 'journal'));
  system = await startSystem('services', {
    STOWAGE_UPLOAD_EXPIRY: '20s',
    STOWAGE_UPLOAD_LEASE: '2s',
    STOWAGE_JOB_INTERVAL: '1s',
    STOWAGE_LOG_LEVEL: 'error',
  });
  client = await logIn(system.url);
  directory = String((await client.makeDirectory('terminations'))['id']);
});

afterAll(async () => {
  await system?.close();
  journal.close();
  await rm(folder, { recursive: true, force: true });
  report.print();
});

/** How each process that ended did so, as its launcher noted it. */
function ends(): { name: string; code: number | null; signal: string | null }[] {
  return system
    .output()
    .split('\n')
    .filter((line) => line.includes('A service ended'))
    .map((line) => JSON.parse(line));
}

test('a process that is told to end does so with 0 in time, and nothing acknowledged is lost', async () => {
  let stopped = false;
  const isStopped = (): boolean => stopped || journal.violations.length > 0;
  const running = Array.from({ length: clients }, (_, index) => {
    const needs = { directory, random: random.fork(), journal, label: `client-${index}` };
    return new CrashClient(client, needs, { largest: 8 * 1024 * 1024, deletes: 0.1 }).run(isStopped);
  });
  const ended = Promise.all(running).catch((error: unknown) => journal.violated(String(error)));
  const times: number[] = [];
  while (times.length < faultSizes.terminations && journal.violations.length === 0) {
    // One that has barely started has no handler yet, and nothing to lose.
    await untilReady(client, 60_000);
    await sleep(random.integer(50, 1_000));
    const service = services[random.integer(0, services.length - 1)] ?? '';
    const pid = await until(() => system.pidOf(service).catch(() => null));
    const began = performance.now();
    process.kill(pid, 'SIGTERM');
    await until(() => isGone(pid), limitMs);
    times.push(performance.now() - began);
  }
  stopped = true;
  await untilReady(client, 60_000);
  await ended;
  const judged = Journal.read(join(folder, 'journal'));
  await checkFiles(client, directory, judged);
  await checkTables(system.databaseUrl, judged);
  report.add('services', { ended: timesOf(times), ok: judged.count('ok'), answers: JSON.stringify(journal.answers) });
  expect({ seed: random.seed, violations: judged.violations }).toEqual({ seed: random.seed, violations: [] });
  expect(ends()).toHaveLength(faultSizes.terminations);
  expect(ends().filter(({ code }) => code !== 0)).toEqual([]);
  expect(judged.count('ok')).toBeGreaterThan(faultSizes.terminations);
}, 3_600_000);

test('staging is empty once uploads expired', () =>
  until(async () => (await stagedIn(system.dataDir)).length === 0, 60_000));
