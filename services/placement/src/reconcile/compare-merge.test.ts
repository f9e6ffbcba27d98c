import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { KeyMerge, mergeStart } from './compare-merge.ts';
import type { KnownReplica, MergePosition, Sides, StoredBlob, Stretch } from './compare-merge.ts';

/** Few folders and few ids, so that many meet. */
const blobId = fc
  .tuple(fc.integer({ min: 0, max: 60 }), fc.integer({ min: 0, max: 3 }))
  .map(([n, folder]) => `${n.toString(16).padStart(4, '0')}-0${folder}`);

/** By this text blobs are in the order of their keys. */
const orderOf = (id: string): string => id.slice(-2) + id;

const byKey = <T extends { blobId: string }>(items: T[]): T[] =>
  items.sort((one, other) => (orderOf(one.blobId) < orderOf(other.blobId) ? -1 : 1));

const known = fc
  .uniqueArray(fc.record({ blobId, size: fc.integer({ min: 0, max: 2 }), readable: fc.boolean() }), {
    selector: (replica) => replica.blobId,
    maxLength: 40,
  })
  .map(byKey);
const stored = fc
  .uniqueArray(fc.record({ blobId, size: fc.integer({ min: 0, max: 2 }), modifiedAt: fc.constant(new Date(0)) }), {
    selector: (object) => object.blobId,
    maxLength: 40,
  })
  .map(byKey);

const size = fc.integer({ min: 1, max: 7 });
/** Some pages of a store are empty, and still not the last. */
const world = fc.record({ known, stored, knownPage: size, storedPage: size, empty: fc.array(fc.boolean()) });
type World = typeof world extends fc.Arbitrary<infer W> ? W : never;

function sidesOf({ known: replicas, stored: objects, knownPage, storedPage, empty }: World): Sides {
  const gaps = [...empty];
  return {
    known: async (after) => {
      const rest = replicas.filter((one) => after === '' || orderOf(one.blobId) > orderOf(after));
      return { items: rest.slice(0, knownPage), more: rest.length >= knownPage };
    },
    stored: async (cursor) => {
      // `<order of the last>` or `<order of the last>+`, after an empty page.
      const [from = ''] = cursor.split('+');
      const rest = objects.filter((one) => orderOf(one.blobId) > from);
      if (gaps.shift() === true && !cursor.endsWith('+')) return { items: [], next: `${cursor}+` };
      const items = rest.slice(0, storedPage);
      const last = items.at(-1);
      return { items, next: last && rest.length > items.length ? orderOf(last.blobId) : null };
    },
  };
}

/** All stretches; begun anew from its position after each step of which `crashes` says so. */
async function walk(given: World, crashes: readonly boolean[] = []): Promise<Stretch[]> {
  const again = [...crashes];
  const stretches: Stretch[] = [];
  let position: MergePosition = mergeStart;
  let merge = new KeyMerge(sidesOf(given), position);
  for (;;) {
    const stretch = await merge.step();
    if (!stretch) return stretches;
    stretches.push(stretch);
    position = merge.position;
    if (again.shift() === true) merge = new KeyMerge(sidesOf(given), position);
  }
}

/** The same by the plainest way there is. */
function expected({ known: replicas, stored: objects }: World): { doubtful: string[]; strays: string[] } {
  const sizes = new Map(objects.map((object) => [object.blobId, object.size]));
  const names = new Set(replicas.map((replica) => replica.blobId));
  return {
    doubtful: replicas.filter((one) => one.readable && sizes.get(one.blobId) !== one.size).map((one) => one.blobId),
    strays: objects.filter((one) => !names.has(one.blobId)).map((one) => one.blobId),
  };
}

const idsOf = (items: readonly (KnownReplica | StoredBlob)[]): string[] => items.map((item) => item.blobId);

describe('comparing two sides in the order of keys', () => {
  test('finds each difference once, whatever the pages, and after any crash', async () => {
    await fc.assert(
      fc.asyncProperty(world, fc.array(fc.boolean()), async (given, crashes) => {
        const stretches = await walk(given, crashes);
        expect({
          doubtful: idsOf(stretches.flatMap(({ doubtful }) => doubtful)),
          strays: idsOf(stretches.flatMap(({ strays }) => strays)),
        }).toEqual(expected(given));
        const sum = (count: (one: Stretch) => number): number => stretches.reduce((all, one) => all + count(one), 0);
        expect(sum((one) => one.known)).toBe(given.known.length);
        expect(sum((one) => one.stored)).toBe(given.stored.length);
        expect(sum((one) => one.bytes)).toBe(given.stored.reduce((all, one) => all + one.size, 0));
      }),
      { numRuns: 2_000 },
    );
  });

  test('refuses a listing that is not in order, or does not go on', async () => {
    const none = async () => ({ items: [], more: false });
    const page = (ids: string[], next: string | null) => ({
      items: ids.map((id) => ({ blobId: id, size: 1, modifiedAt: new Date(0) })),
      next,
    });
    const backwards: Sides = { known: none, stored: async (at) => page(at === '' ? ['b-02'] : ['a-01'], 'more') };
    const merge = new KeyMerge(backwards, mergeStart);
    await merge.step();
    await expect(merge.step()).rejects.toMatchObject({ code: 'unavailable' });
    const stuck: Sides = { known: none, stored: async () => page([], '') };
    await expect(new KeyMerge(stuck, mergeStart).step()).rejects.toMatchObject({ code: 'unavailable' });
  });

  test('that breaks off in the middle of a listing has compared nothing beyond it', async () => {
    await fc.assert(
      fc.asyncProperty(world, fc.nat({ max: 5 }), async (given, pages) => {
        const sides = sidesOf(given);
        let left = pages;
        const broken: Sides = {
          known: sides.known,
          stored: async (cursor) => {
            left -= 1;
            if (left < 0) throw new Error('the disk is gone');
            return sides.stored(cursor);
          },
        };
        const merge = new KeyMerge(broken, mergeStart);
        const seen: string[] = [];
        for (;;) {
          const stretch = await merge.step().catch(() => null);
          if (!stretch) break;
          seen.push(...idsOf(stretch.doubtful));
        }
        expect(expected(given).doubtful.slice(0, seen.length)).toEqual(seen);
      }),
      { numRuns: 500 },
    );
  });
});
