import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { AppError } from '@stowage/common/errors';
import { backgroundContext } from '@stowage/common/rpc/context';
import { around, localId } from './test-neighbours.ts';
import { startTestPlacement } from './test-placement.ts';
import type { TestPlacement } from './test-placement.ts';

let placement: TestPlacement;

beforeAll(async () => {
  placement = await startTestPlacement();
});
afterAll(() => placement.close());

test('a service whose backend-registry is away starts all the same, and makes the default policy later', async () => {
  const context = backgroundContext(new AbortController().signal);
  const ask = () => placement.policies.getPolicy({ fileClass: 'image' }, context);
  await expect(ask()).rejects.toMatchObject({ code: 'unavailable' } satisfies Partial<AppError>);
  around.registryUp = true;
  const limit = Date.now() + 10_000;
  let found = null;
  while (!found && Date.now() < limit) found = await ask().catch(() => null);
  expect(found?.policy).toMatchObject({
    fileClass: 'default',
    backendIds: [localId],
    replicas: 1,
    syncReplicas: 1,
    version: 1n,
  });
});
