import { expect } from '@jest/globals';
import { newId } from '@stowage/common/ids';
import type { AppendableStore, ListedStaged, StagedPage } from './blob-store.ts';
import { append, refuses } from './test-store.ts';

const empty = { staged: {}, blobs: {} };

/** What a store promises of listing staged content; each case leaves nothing behind. */
export const stagedListingCases: Record<string, (store: AppendableStore) => Promise<typeof empty>> = {
  'staged content is listed page by page, by its ids, with when it was written': async (store) => {
    expect(await store.listStaged(null, 2)).toEqual({ staged: [], next: null });
    const startedAt = Date.now();
    const ids = [newId(), newId(), newId(), newId(), newId()];
    for (const id of ids) await store.createStaged(id);
    for (const id of ids.slice(0, 3)) await append(store, id, 0, 'x');
    await append(store, ids[0] ?? '', 1, 'y');
    for (const limit of [1, 2, 5, 1_000]) {
      const found: ListedStaged[] = [];
      let cursor: string | null = null;
      do {
        const page: StagedPage = await store.listStaged(cursor, limit);
        expect(page.staged.length).toBeLessThanOrEqual(limit);
        found.push(...page.staged);
        cursor = page.next;
      } while (cursor !== null);
      expect(found.map(({ id }) => id)).toEqual([...ids].sort());
      for (const { modifiedAt } of found) expect(Math.abs(modifiedAt.getTime() - startedAt)).toBeLessThan(300_000);
    }
    await refuses(store.listStaged('../x', 1), 'validation_failed');
    for (const id of ids) await store.discard(id);
    expect(await store.listStaged(null, 2)).toEqual({ staged: [], next: null });
    return empty;
  },
};
