import { afterAll, beforeAll, test } from '@jest/globals';
import { setTimeout as sleep } from 'node:timers/promises';
import { Release, replicated } from '@stowage/tests/support/cluster/release';
import { expectNothingLost } from '@stowage/tests/support/cluster/under-load';

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
  () =>
    expectNothingLost(release, async (random) => {
      const deleted: string[] = [];
      for (const until = performance.now() + lastsMs; performance.now() < until;) {
        const [all] = await Promise.all([release.pods(), sleep(everyMs)]);
        const pods = all.filter((pod) => pod['metadata'].deletionTimestamp === undefined);
        const victim: string = pods[random.integer(0, pods.length - 1)]?.['metadata'].name;
        await release.kubectl(['delete', 'pod', victim, '--wait=false', '--ignore-not-found']);
        deleted.push(victim);
      }
      await release.settled();
      return `${deleted.length} pods deleted, one every ${everyMs / 1_000} s (${deleted.join(', ')})`;
    }),
  lastsMs + 600_000,
);
