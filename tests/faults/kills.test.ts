import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { logIn, until, untilReady } from '../support/client.ts';
import type { Client } from '../support/client.ts';
import { blobHashes, checkFiles, checkTables, stagedIn } from '../support/crash-check.ts';
import { CrashClient } from '../support/crash-client.ts';
import { Journal } from '../support/crash-journal.ts';
import { FaultReport, timesOf } from '../support/fault-report.ts';
import { faultSizes } from '../support/fault-sizes.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { startSystem } from '../support/system.ts';
import type { Mode, System } from '../support/system.ts';

const clients = 5;
const largest = 8 * 1024 * 1024;
const services = ['gateway', 'catalog', 'upload', 'backend-registry', 'placement', 'export'];
const settings = {
  // Long enough for a client that was held up, short enough to wait for at the end.
  STOWAGE_UPLOAD_EXPIRY: '20s',
  STOWAGE_UPLOAD_LEASE: '2s',
  STOWAGE_JOB_INTERVAL: '1s',
  STOWAGE_JOB_LEASE: '2s',
  STOWAGE_GC_GRACE: '1s',
  STOWAGE_LOG_LEVEL: 'error',
};

const plan: { mode: Mode; kills: number; uploads: number }[] = [
  { mode: 'standalone', kills: faultSizes.killsOfAll, uploads: 0 },
  { mode: 'services', kills: faultSizes.kills, uploads: faultSizes.uploads },
];
const report = new FaultReport('R01 kill -9 under load');
afterAll(() => report.print());

/** The oracle is the clients' journal: whatever was acknowledged is there, whole and once, and nothing else. */
describe.each(plan)('R01 kill -9 under load, $mode', ({ mode, kills, uploads }) => {
  const random = new Random(chooseSeed());
  const recoveries: number[] = [];
  let folder: string;
  let journal: Journal;
  let system: System;
  let client: Client;
  let directory: string;

  beforeAll(async () => {
    process.stderr.write(`kills, ${mode}: STOWAGE_TEST_SEED=${random.seed}\n`);
    folder = await mkdtemp(join(tmpdir(), 'stowage-faults-'));
    journal = new Journal(join(folder, 'journal'));
    system = await startSystem(mode, settings);
    client = await logIn(system.url);
    directory = String((await client.makeDirectory('crashes'))['id']);
  });

  afterAll(async () => {
    await system?.close();
    journal.close();
    await rm(folder, { recursive: true, force: true });
  });

  /** In one process all is killed; of six, any one, whether or not the one before is back. */
  async function kill(): Promise<void> {
    const start = performance.now();
    if (mode === 'standalone') {
      await system.kill();
      await system.restart();
      recoveries.push(performance.now() - start);
      return;
    }
    const service = services[random.integer(0, services.length - 1)] ?? '';
    process.kill(await until(() => system.pidOf(service).catch(() => null)), 'SIGKILL');
    if (!random.chance(0.2)) return;
    await untilReady(client, 60_000);
    recoveries.push(performance.now() - start);
  }

  test('survives every kill with nothing acknowledged lost, nothing twice, and no offset that goes back', async () => {
    let stopped = false;
    const running = Array.from({ length: clients }, (_, index) => {
      const needs = { directory, random: random.fork(), journal, label: `client-${index}` };
      const isStopped = (): boolean => (stopped && journal.count('ok') >= uploads) || journal.violations.length > 0;
      return new CrashClient(client, needs, { largest, deletes: 0.1 }).run(isStopped);
    });
    const ended = Promise.all(running).catch((error: unknown) => journal.violated(String(error)));
    for (let killed = 0; killed < kills && journal.violations.length === 0; killed += 1) {
      await sleep(random.integer(50, 2 * faultSizes.killEveryMs - 50));
      await kill();
    }
    stopped = true;
    await untilReady(client, 60_000);
    await ended;
    const judged = Journal.read(join(folder, 'journal'));
    await checkFiles(client, directory, judged);
    await checkTables(system.databaseUrl, judged);
    report.add(mode, {
      kills,
      ok: judged.count('ok'),
      unknown: judged.count('unknown'),
      recovery: timesOf(recoveries),
      answers: JSON.stringify(journal.answers),
    });
    expect({ seed: random.seed, violations: judged.violations }).toEqual({ seed: random.seed, violations: [] });
    expect(judged.count('ok')).toBeGreaterThan(kills);
    expect(judged.interruptions).toBeGreaterThan(0);
  }, 7_200_000);

  test('staging is empty once uploads expired, every blob on disk is a file’s, and no job is left hanging', async () => {
    await until(async () => (await stagedIn(system.dataDir)).length === 0, 60_000);
    const judged = Journal.read(join(folder, 'journal'));
    const files = await checkFiles(client, directory, judged);
    // The recycle bin keeps content.
    const recycled = [...judged.entries.values()].filter(({ removal }) => removal === 'ok');
    const hashes = [...files, ...recycled].map((file) => String(file['sha256'])).sort();
    await until(async () => (await blobHashes(system.dataDir)).length === hashes.length, 60_000).catch(() => undefined);
    const found = await blobHashes(system.dataDir);
    expect({ blobs: found.length, extra: found.filter((hash) => !hashes.includes(hash)) }).toEqual({
      blobs: hashes.length,
      extra: [],
    });
    await checkTables(system.databaseUrl, judged);
    expect(judged.violations).toEqual([]);
  }, 150_000);
});
