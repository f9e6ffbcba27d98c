import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { sectionChanges } from './section-changes.ts';
import { startTestPlans } from './test-plans.ts';
import type { TestPlans } from './test-plans.ts';

let plans: TestPlans;
beforeAll(async () => {
  plans = await startTestPlans();
});
afterAll(() => plans.close());

test('a document of what is there changes nothing', async () => {
  const number = await plans.stageLive();
  const none = { create: 0n, update: 0n, remove: 0n };
  expect(await plans.run((client) => sectionChanges(client, number))).toEqual([
    { section: 'directories', ...none, unchanged: 6n },
    { section: 'files', ...none, unchanged: 20n },
    { section: 'blobs', ...none, unchanged: 20n },
    { section: 'replicas', ...none, unchanged: 40n },
    { section: 'backends', ...none, unchanged: 2n },
    { section: 'policies', ...none, unchanged: 2n },
  ]);
});
