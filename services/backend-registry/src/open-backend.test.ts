import { afterAll, afterEach, beforeAll, expect, jest, test } from '@jest/globals';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { markerName } from './stores/identity-marker.ts';
import { startTestRegistry } from './test-registry.ts';
import type { TestRegistry } from './test-registry.ts';

const hourMs = 3_600_000;
let registry: TestRegistry;

beforeAll(async () => {
  registry = await startTestRegistry();
});

afterEach(() => {
  jest.restoreAllMocks();
});

afterAll(() => registry.close());

test('a clock that is set back does not make a marker believed for longer', async () => {
  await registry.replica().setUp();
  const backends = registry.replica().stores;
  const id = (await registry.rows())[0]?.id ?? '';
  await backends.open(id);
  await rm(path.join(registry.root, markerName));
  jest.spyOn(Date, 'now').mockReturnValue(Date.now() - hourMs);
  jest.spyOn(performance, 'now').mockReturnValue(performance.now() + 31_000);
  await expect(backends.open(id)).rejects.toMatchObject({ code: 'unavailable' });
});
