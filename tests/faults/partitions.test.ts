import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { environmentOf, startBeside } from '../support/beside.ts';
import type { Beside } from '../support/beside.ts';
import { defaultBackend, makeBackend } from '../support/backends.ts';
import { Client, expectStatus, logIn, until } from '../support/client.ts';
import { checkFiles, checkTables } from '../support/crash-check.ts';
import { CrashClient } from '../support/crash-client.ts';
import { Journal } from '../support/crash-journal.ts';
import { FaultReport } from '../support/fault-report.ts';
import { faultSizes } from '../support/fault-sizes.ts';
import { JobTable } from '../support/job-table.ts';
import { PartitionProxy } from '../support/partition-proxy.ts';
import type { Lost } from '../support/partition-proxy.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { startSystem, uniqueName } from '../support/system.ts';
import type { System } from '../support/system.ts';
import { createUpload, finalize } from '../support/uploads.ts';

const clients = 3;
/** Longer than any deadline that the service has for what a client asks. */
const hangMs = 60_000;

type Side = 'gateway' | 'upload' | 'placement';
interface Link {
  from: Side;
  to: string;
  /** The settings by which `from` finds it. */
  settings: readonly string[];
}

const links: readonly Link[] = [
  { from: 'gateway', to: 'upload', settings: ['STOWAGE_UPLOAD_RPC', 'STOWAGE_UPLOAD_BYTES'] },
  { from: 'gateway', to: 'catalog', settings: ['STOWAGE_CATALOG_RPC'] },
  { from: 'gateway', to: 'PostgreSQL', settings: ['STOWAGE_DATABASE_URL'] },
  {
    from: 'upload',
    to: 'backend-registry',
    settings: ['STOWAGE_BACKEND_REGISTRY_RPC', 'STOWAGE_BACKEND_REGISTRY_BYTES'],
  },
  { from: 'upload', to: 'catalog', settings: ['STOWAGE_CATALOG_RPC'] },
  { from: 'upload', to: 'placement', settings: ['STOWAGE_PLACEMENT_RPC'] },
  { from: 'upload', to: 'PostgreSQL', settings: ['STOWAGE_DATABASE_URL'] },
  { from: 'placement', to: 'catalog', settings: ['STOWAGE_CATALOG_RPC'] },
  {
    from: 'placement',
    to: 'backend-registry',
    settings: ['STOWAGE_BACKEND_REGISTRY_RPC', 'STOWAGE_BACKEND_REGISTRY_BYTES'],
  },
  { from: 'placement', to: 'PostgreSQL', settings: ['STOWAGE_DATABASE_URL'] },
];

/** In CI only what ends soon: a body that is under way may be waited for up to 50 s. */
const inCi = new Set([
  'upload catalog both',
  'upload PostgreSQL requests',
  'placement backend-registry both',
  'placement PostgreSQL answers',
]);
const ways: readonly Lost[] = ['requests', 'answers', 'both'];
const plan = links
  .flatMap((link) => ways.map((lost) => ({ ...link, lost })))
  .filter(({ from, to, lost }) => faultSizes.everyShape || inCi.has(`${from} ${to} ${lost}`));

const report = new FaultReport('R13 partitions');
afterAll(() => report.print());

describe('R13: while what goes between two processes is lost', () => {
  const random = new Random(chooseSeed());
  const proxies = new Map<string, PartitionProxy>();
  let folder: string;
  let journal: Journal;
  let system: System;
  let upload: Beside;
  let gateway: Beside;
  let worker: Beside;
  let client: Client;
  let directory: string;

  beforeAll(async () => {
    process.stderr.write(`partitions: STOWAGE_TEST_SEED=${random.seed}\n`);
    folder = await mkdtemp(join(tmpdir(), 'stowage-faults-'));
    journal = new Journal(join(folder, 'journal'));
    system = await startSystem('services', {
      STOWAGE_UPLOAD_LEASE: '2s',
      STOWAGE_JOB_LEASE: '2s',
      STOWAGE_LOG_LEVEL: 'error',
    });
    upload = await startBeside(system, 'upload', await proxied('upload', {}));
    gateway = await startBeside(system, 'gateway', await proxied('gateway', upload.addresses));
    client = new Client(gateway.url, (await logIn(system.url)).token);
    // A second worker beside the first; each file makes a job, that of its second copy.
    worker = await startBeside(system, 'placement', await proxied('placement', {}));
    const body = { backends: [(await defaultBackend(client))['id'], (await makeBackend(client))['id']], replicas: 2 };
    expectStatus(await client.call('PUT', '/api/policies/placement/default', { body }), 200);
    directory = String((await client.makeDirectory('partitions'))['id']);
  }, 120_000);

  afterAll(async () => {
    await worker?.close();
    await gateway?.close();
    await upload?.close();
    for (const proxy of proxies.values()) await proxy.close();
    await system?.close();
    journal.close();
    await rm(folder, { recursive: true, force: true });
  });

  /** The settings of a process that reaches each of the others by a proxy of its own. */
  async function proxied(side: Side, given: Record<string, string>): Promise<Record<string, string>> {
    const environment = { ...(await environmentOf(await system.pidOf(side))), ...given };
    const settings: Record<string, string> = {};
    for (const name of links.filter(({ from }) => from === side).flatMap((link) => link.settings)) {
      const address = environment[name] ?? '';
      const target = /^\w+:/.test(address) && address.includes('//') ? new URL(address).host : address;
      const proxy = await PartitionProxy.start(target);
      proxies.set(`${side} ${name}`, proxy);
      settings[name] = address.replace(target, proxy.address);
    }
    return settings;
  }

  /** A whole upload by way of everything, as a client that has just come. */
  async function worksAgain(): Promise<boolean> {
    const metadata = { filename: uniqueName() };
    const made = await createUpload(client, { length: 3, metadata, body: Buffer.from('abc') }).catch(() => null);
    const id = made?.headers.get('location')?.split('/').at(-1);
    if (made?.status !== 201 || id === undefined) return false;
    return (await finalize(client, { id }).catch(() => null))?.status === 201;
  }

  /** Each file has its second copy, so no job was lost. */
  async function copied(): Promise<void> {
    const jobs = await JobTable.open(system.databaseUrl);
    try {
      await until(async () => {
        await jobs.wake();
        return (await jobs.unfinished('place_blob')) === 0;
      }, 60_000);
    } finally {
      await jobs.close();
    }
    const { json } = expectStatus(await client.get('/api/policies/placement/preview'), 200);
    for (const { unsatisfiable, to_copy: toCopy, lost } of json['classes'])
      expect({ unsatisfiable, toCopy, lost }).toEqual({ unsatisfiable: 0, toCopy: 0, lost: 0 });
  }

  test.each(plan)(
    '$from → $to, $lost: nothing acknowledged is lost, and all goes on when it heals',
    async (link) => {
      let stopped = false;
      const before = journal.interruptions;
      const running = Array.from({ length: clients }, (_, index) => {
        const needs = { directory, random: random.fork(), journal, label: uniqueName(`client-${index}`) };
        return new CrashClient(client, needs, { hangMs }).run(() => stopped || journal.violations.length > 0);
      });
      const ended = Promise.all(running).catch((error: unknown) => journal.violated(String(error)));
      await sleep(random.integer(500, 1_500));
      const cut = link.settings.map((name) => proxies.get(`${link.from} ${name}`));
      for (const proxy of cut) proxy?.lose(link.lost);
      await sleep(faultSizes.partitionMs);
      for (const proxy of cut) proxy?.lose(null);
      const start = performance.now();
      await until(worksAgain, 120_000);
      const healed = Math.round(performance.now() - start);
      stopped = true;
      await ended;
      report.add(`${link.from} → ${link.to}, ${link.lost}`, {
        'back after ms': healed,
        interruptions: journal.interruptions - before,
        ok: journal.count('ok'),
      });
      expect({ seed: random.seed, violations: journal.violations }).toEqual({ seed: random.seed, violations: [] });
      // Clients see nothing of a worker that is cut off.
      if (link.from !== 'placement') expect(journal.interruptions).toBeGreaterThan(before);
      await copied();
    },
    600_000,
  );

  test('every file that was acknowledged is there, once and whole', async () => {
    const judged = Journal.read(join(folder, 'journal'));
    await checkFiles(client, directory, judged);
    await checkTables(system.databaseUrl, judged);
    report.add('after all', {
      ok: judged.count('ok'),
      unknown: judged.count('unknown'),
      answers: JSON.stringify(journal.answers),
    });
    expect(judged.violations).toEqual([]);
    expect(judged.count('ok')).toBeGreaterThan(plan.length);
  });
});
