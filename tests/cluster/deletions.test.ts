import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { setTimeout as sleep } from 'node:timers/promises';
import { JobLedger } from '@stowage/tests/support/cluster/job-ledger';
import { Load } from '@stowage/tests/support/cluster/load';
import { Release, replicated } from '@stowage/tests/support/cluster/release';
import { say, sayMet } from '@stowage/tests/support/cluster/report';
import { Random, chooseSeed } from '@stowage/tests/support/random';

const clients = 20;
const everyMs = 10_000;
/** 600 is what is promised; CI has less time. */
const lastsMs = Number(process.env['STOWAGE_CLUSTER_DELETION_SECONDS'] ?? 60) * 1_000;
let release: Release;

beforeAll(async () => {
  release = await Release.install({ namespace: 'stowage-deletions', values: replicated(2) });
});

afterAll(() => release.remove());

test(
  'R21 deleting any pod every 10 s under load fails no request and loses no job',
  async () => {
    const seed = chooseSeed();
    const random = new Random(seed);
    const root = await release.logIn();
    const ledger = await JobLedger.open(root);
    const directory = await root.makeDirectory('deletions');
    const load = await Load.start(root, { clients, directoryId: directory['id'], random: random.fork() });
    const deleted: string[] = [];
    for (const until = performance.now() + lastsMs; performance.now() < until;) {
      const [next] = await Promise.all([release.pods(), sleep(everyMs)]);
      const pods = next.filter((pod) => pod['metadata'].deletionTimestamp === undefined);
      const victim = pods[random.integer(0, pods.length - 1)]?.['metadata'].name;
      await release.kubectl(['delete', 'pod', victim, '--wait=false']);
      deleted.push(victim);
    }
    await release.settled();
    const met = await load.stop();
    sayMet(`${deleted.length} pods deleted, one every ${everyMs / 1_000} s, seed ${seed}`, met);
    if (met.failures.length > 0) say(`deleted: ${deleted.join(', ')}`);
    expect(met.failures).toEqual([]);
    expect(met.uploads).toBeGreaterThan(clients);
    expect(await load.damaged()).toEqual([]);
    const jobs = await ledger.settle(load.kept);
    say(`jobs: ${JSON.stringify(jobs.counts)}`);
    expect(jobs.lost).toEqual([]);
  },
  lastsMs + 600_000,
);
