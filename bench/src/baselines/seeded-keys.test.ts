import { expect, test } from '@jest/globals';
import { seededFileId } from '../system/seed.ts';
import { keysAfter } from './seeded-keys.ts';

test('page by page all keys are listed once, in the order of S3', () => {
  const blobs = { count: 1_000, idOf: (n: number) => seededFileId(9, n) };
  const listed: string[] = [];
  for (let after: string | null = null; ;) {
    const page = keysAfter(after, 7, blobs);
    listed.push(...page);
    after = page.at(-1) ?? null;
    if (page.length < 7) break;
  }
  const all = Array.from({ length: 1_000 }, (_, index) => seededFileId(9, index + 1));
  expect(listed).toEqual(all.map((id) => `blobs/${id.slice(-2)}/${id}`).sort());
});
