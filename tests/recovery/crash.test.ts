import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { setTimeout as sleep } from 'node:timers/promises';
import { logIn, until } from '../support/client.ts';
import type { Client } from '../support/client.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { startSystem } from '../support/system.ts';
import type { Mode, System } from '../support/system.ts';
import { blobHashes, checkFiles, stagedIn } from '../support/crash-check.ts';
import { CrashClient } from '../support/crash-client.ts';
import { Journal } from '../support/crash-journal.ts';

const clients = 5;
const services = ['gateway', 'catalog', 'upload', 'backend-registry', 'placement', 'export'];
/** Long enough for a client that was held up, short enough to wait for at the end. */
const expiry = {
  STOWAGE_UPLOAD_EXPIRY: '25s',
  STOWAGE_UPLOAD_LEASE: '2s',
  STOWAGE_JOB_INTERVAL: '1s',
  STOWAGE_JOB_LEASE: '2s',
  STOWAGE_GC_GRACE: '1s',
};
const settings = { ...expiry, STOWAGE_LOG_LEVEL: 'error' };

const plan: { mode: Mode; killsOfAll: number; killsOfOne: number }[] = [
  { mode: 'standalone', killsOfAll: 50, killsOfOne: 0 },
  { mode: 'services', killsOfAll: 3, killsOfOne: 10 },
];

/** The oracle is the clients' journal: whatever was acknowledged is there, whole and once, and nothing else. */
describe.each(plan)('kill -9 under load, $mode', ({ mode, killsOfAll, killsOfOne }) => {
  const random = new Random(chooseSeed());
  const journal = new Journal();
  let system: System;
  let client: Client;
  let directory: string;

  beforeAll(async () => {
    process.stderr.write(`crash test, ${mode}: STOWAGE_TEST_SEED=${random.seed}\n`);
    system = await startSystem(mode, settings);
    client = await logIn(system.url);
    directory = String((await client.makeDirectory('crashes'))['id']);
  });

  afterAll(() => system?.close());

  async function killOne(service: string): Promise<void> {
    const pid = await until(() => system.pidOf(service).catch(() => null));
    process.kill(pid, 'SIGKILL');
    await until(async () => {
      const now = await system.pidOf(service).catch(() => pid);
      return now !== pid && (await isReady());
    });
  }

  async function isReady(): Promise<boolean> {
    const answer = await client.get('/api/system/ready').catch(() => null);
    return answer?.status === 200;
  }

  async function killAll(): Promise<void> {
    await system.kill();
    await system.restart();
  }

  test('survives every kill with nothing acknowledged lost, nothing twice, and no offset that goes back', async () => {
    let stopped = false;
    const running = Array.from({ length: clients }, (_, index) => {
      const needs = { directory, random: random.fork(), journal, label: `client-${index}` };
      return new CrashClient(client, needs).run(() => stopped || journal.violations.length > 0);
    });
    const failed = Promise.all(running).then(() => null);
    failed.catch(() => undefined);
    const kills: (() => Promise<void>)[] = [
      ...Array.from({ length: killsOfAll }, () => killAll),
      ...Array.from({ length: killsOfOne }, (_, index) => () => killOne(services[index % services.length] ?? '')),
    ];
    for (const kill of kills) {
      await sleep(random.integer(50, 700));
      await kill();
      if (journal.violations.length > 0) break;
    }
    stopped = true;
    await failed;
    await checkFiles(client, directory, journal);
    const figures = {
      ok: journal.count('ok'),
      unknown: journal.count('unknown'),
      interruptions: journal.interruptions,
    };
    process.stderr.write(`crash test, ${mode}: ${JSON.stringify(figures)}\n`);
    expect({ seed: random.seed, violations: journal.violations }).toEqual({ seed: random.seed, violations: [] });
    expect(figures.ok).toBeGreaterThan(kills.length);
    expect(figures.interruptions).toBeGreaterThan(0);
  }, 400_000);

  test('staging is empty once uploads expired, and every blob on disk is a file’s', async () => {
    await until(async () => (await stagedIn(system.dataDir)).length === 0, 60_000);
    const files = await checkFiles(client, directory, journal);
    const hashes = files.map((file) => String(file['sha256'])).sort();
    await until(async () => JSON.stringify(await blobHashes(system.dataDir)) === JSON.stringify(hashes), 60_000).catch(
      () => undefined,
    );
    const found = await blobHashes(system.dataDir);
    expect({ blobs: found.length, extra: found.filter((hash) => !hashes.includes(hash)) }).toEqual({
      blobs: hashes.length,
      extra: [],
    });
    expect(journal.violations).toEqual([]);
  }, 150_000);
});
