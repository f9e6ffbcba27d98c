import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { setTimeout as sleep } from 'node:timers/promises';
import { Release, replicated } from '@stowage/tests/support/cluster/release';
import { expectNothingLost } from '@stowage/tests/support/cluster/under-load';

/** How long the load runs alone before and after. */
const aroundMs = 5_000;
let release: Release;

beforeAll(async () => {
  release = await Release.install({ namespace: 'stowage-upgrade', values: replicated(2) });
});

afterAll(() => release.remove());

test('R20 an upgrade to another image under load fails no request and loses no job', async () => {
  const before = await imagesOf(release);
  await expectNothingLost(release, async () => {
    await sleep(aroundMs);
    const seconds = await release.upgrade({ tag: 'next' });
    await release.settled();
    await sleep(aroundMs);
    return `helm upgrade to another image in ${seconds.toFixed(1)} s, two pods of each service`;
  });
  const after = await imagesOf(release);
  expect([before.size, after.size]).toEqual([1, 1]);
  expect(after).not.toEqual(before);
});

async function imagesOf(from: Release): Promise<Set<string>> {
  return new Set((await from.pods()).map((pod) => pod['spec'].containers[0].image));
}
