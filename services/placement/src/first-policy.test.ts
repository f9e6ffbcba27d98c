import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { backgroundContext } from '@stowage/common/rpc/context';
import type { Policy } from '@stowage/proto/stowage/placement/v1/policy';
import { until } from '@stowage/tests/support/client';
import { around, localId } from './test-neighbours.ts';
import { startTestPlacement } from './test-placement.ts';
import type { TestPlacement } from './test-placement.ts';

let placement: TestPlacement | undefined;

beforeEach(() => {
  placement = undefined;
  Object.assign(around, { registryUp: true, hasDefault: true, asked: 0 });
});
afterEach(() => placement?.close());

const context = backgroundContext(new AbortController().signal);
const first = { fileClass: 'default', backendIds: [localId], replicas: 1, syncReplicas: 1, version: 1n };

async function ask({ policies }: TestPlacement): Promise<Policy | undefined> {
  return (await policies.getPolicy({ fileClass: 'image' }, context)).policy;
}

test('a first start waits for backend-registry, and has the default policy then', async () => {
  around.registryUp = false;
  const starting = startTestPlacement();
  await until(async () => around.asked >= 6, 60_000);
  around.registryUp = true;
  placement = await starting;
  expect(await ask(placement)).toMatchObject(first);
});

test('a service that has no default backend starts, and makes the default policy when there is one', async () => {
  around.hasDefault = false;
  const started = (placement = await startTestPlacement());
  await expect(ask(started)).rejects.toMatchObject({ code: 'unavailable' });
  around.hasDefault = true;
  expect(await until(async () => (await ask(started).catch(() => undefined)) ?? null)).toMatchObject(first);
});
