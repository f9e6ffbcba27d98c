import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { until } from '@stowage/tests/support/client';
import type { Json } from '@stowage/tests/support/client';
import { kubectl } from '@stowage/tests/support/cluster/commands';
import { Release, serviceNames } from '@stowage/tests/support/cluster/release';

const limitMs = 120_000;
let release: Release;

beforeAll(async () => {
  release = await Release.install({ namespace: 'stowage-waiting', values: { persistence: { size: '1Gi' } } });
});

afterAll(async () => {
  await scale(1);
  await release.remove();
});

async function scale(replicas: number): Promise<void> {
  await kubectl(['-n', 'deps', 'scale', 'statefulset/postgres', 'statefulset/nats', `--replicas=${replicas}`]);
  for (const name of ['postgres', 'nats']) {
    await kubectl(['-n', 'deps', 'rollout', 'status', `statefulset/${name}`, '--timeout=120s']);
  }
}

function restarts(pods: readonly Json[]): number {
  const statuses: Json[] = pods.flatMap((pod) => pod['status'].containerStatuses ?? []);
  return statuses.reduce((sum, status) => sum + status['restartCount'], 0);
}

function isRunning(pod: Json): boolean {
  return (pod['status'].containerStatuses ?? []).some((status: Json) => status['state'].running !== undefined);
}

test('R36 pods that start without PostgreSQL and NATS wait for them, and crash not once', async () => {
  await scale(0);
  await release.kubectl(['delete', 'pods', '-l', 'app.kubernetes.io/part-of=stowage', '--wait=false']);
  // All of them are there again, started, and not Ready.
  await until(async () => {
    const pods = (await release.pods()).filter((pod) => pod['metadata'].deletionTimestamp === undefined);
    return pods.length >= serviceNames.length && pods.every(isRunning);
  }, limitMs);
  const waiting = (await release.pods()).filter((pod) => pod['metadata'].deletionTimestamp === undefined);
  expect(waiting.filter(isReady)).toEqual([]);
  await scale(1);
  await release.settled();
  expect(restarts(await release.pods())).toBe(0);
  await release.untilReady();
});

function isReady(pod: Json): boolean {
  return pod['status'].conditions.some(({ type, status }: Json) => type === 'Ready' && status === 'True');
}
