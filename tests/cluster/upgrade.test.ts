import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { setTimeout as sleep } from 'node:timers/promises';
import { JobLedger } from '@stowage/tests/support/cluster/job-ledger';
import { Load } from '@stowage/tests/support/cluster/load';
import { Release, replicated } from '@stowage/tests/support/cluster/release';
import { sayMet, say } from '@stowage/tests/support/cluster/report';
import { Random, chooseSeed } from '@stowage/tests/support/random';

const clients = 20;
const beforeMs = 5_000;
let release: Release;

beforeAll(async () => {
  release = await Release.install({ namespace: 'stowage-upgrade', values: replicated(2) });
});

afterAll(() => release.remove());

test('R20 an upgrade to another image under load fails no request and loses no job', async () => {
  const seed = chooseSeed();
  const root = await release.logIn();
  const ledger = await JobLedger.open(root);
  const directory = await root.makeDirectory('upgrade');
  const load = await Load.start(root, { clients, directoryId: directory['id'], random: new Random(seed) });
  await sleep(beforeMs);
  const before = await release.pods();
  const seconds = await release.upgrade({ tag: 'next' });
  await release.settled();
  await sleep(beforeMs);
  const met = await load.stop();
  sayMet(`helm upgrade to another image in ${seconds.toFixed(1)} s, two pods of each service, seed ${seed}`, met);

  const images = (await release.pods()).map((pod) => pod['spec'].containers[0].image);
  expect(new Set(images).size).toBe(1);
  expect(images).not.toContain(before[0]?.['spec'].containers[0].image);
  expect(met.failures).toEqual([]);
  expect(met.uploads).toBeGreaterThan(clients);
  expect(await load.damaged()).toEqual([]);
  const jobs = await ledger.settle(load.kept);
  say(`jobs: ${JSON.stringify(jobs.counts)}`);
  expect(jobs.lost).toEqual([]);
});
