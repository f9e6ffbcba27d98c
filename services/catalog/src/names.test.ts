import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { rootDirectoryId } from '@stowage/common/ids';
import { normalizeName } from '@stowage/common/names';
import { nextFreeName } from './names.ts';
import { standingOf } from './standing.ts';
import type { WayStep } from './standing.ts';

/** Text rich in what makes names long or odd, and mostly a name. */
const text = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 300 }),
  fc.string({ unit: 'grapheme', maxLength: 300 }),
  fc.string({ unit: fc.constantFrom('a', '.', ' ', '(2)', 'e\u0301', '\u0344', '\ufb2c', '💾'), maxLength: 90 }),
);

function nameOrNull(raw: string): string | null {
  try {
    return normalizeName(raw);
  } catch {
    return null;
  }
}

describe('a taken name', () => {
  test('gets a number before its last extension', () => {
    expect(nextFreeName('a', 2)).toBe('a (2)');
    expect(nextFreeName('a.txt', 3)).toBe('a (3).txt');
    expect(nextFreeName('a.tar.gz', 2)).toBe('a.tar (2).gz');
    expect(nextFreeName('.env', 2)).toBe('.env (2)');
    expect(nextFreeName('..env', 2)).toBe('..env (2)');
    expect(nextFreeName('a.', 2)).toBe('a. (2)');
    expect(nextFreeName('Mr. Smith', 2)).toBe('Mr. Smith (2)');
    expect(nextFreeName('a (2).txt', 2)).toBe('a (2) (2).txt');
    expect(nextFreeName('💾'.repeat(63) + 'abc', 10)).toBe(`${'💾'.repeat(62)} (10)`);
    expect(nextFreeName(`${'a'.repeat(251)}.txt`, 10_000)).toBe(`${'a'.repeat(243)} (10000).txt`);
  });

  test('with a number is a name again, and another one for another number', () => {
    const number = fc.integer({ min: 2, max: 10_000 });
    fc.assert(
      fc.property(text, number, number, (raw, n, m) => {
        const name = nameOrNull(raw);
        fc.pre(name !== null);
        expect(normalizeName(nextFreeName(name, n))).toBe(nextFreeName(name, n));
        expect(nextFreeName(name, n) === nextFreeName(name, m)).toBe(n === m);
      }),
      { numRuns: 2_000 },
    );
  });
});

describe('where a node stands', () => {
  const step = (id: string, parent: string | null, mark: 'live' | 'deleted' | 'purged' = 'live'): WayStep => {
    const time = mark === 'deleted' ? `2026-01-01T00:00:0${id.length % 10}Z` : null;
    return { id, parent_id: parent, name: `n${id}`, deleted_at: time, purge_at: time, purged: mark === 'purged' };
  };
  const root: WayStep = { ...step(rootDirectoryId, null), name: '' };

  test('is told by the names above it', () => {
    expect(standingOf([root])).toMatchObject({ path: '/', parentId: null, depth: 0, entry: null });
    const way = [step('b', 'a'), step('a', rootDirectoryId), root];
    expect(standingOf(way)).toMatchObject({ path: '/na/nb', parentId: 'a', depth: 2, entry: null });
  });

  test('is decided by the nearest mark', () => {
    const deletedAbove = [step('c', 'b'), step('b', 'a', 'deleted'), step('a', rootDirectoryId, 'deleted'), root];
    expect(standingOf(deletedAbove)).toMatchObject({ path: '/na/nb/nc', entry: { id: 'b' } });
    expect(standingOf([step('c', 'b'), step('b', 'a', 'purged')])).toBeNull();
    expect(standingOf([step('c', 'b', 'deleted'), step('b', 'a', 'purged')])).toMatchObject({
      path: '/nc',
      parentId: null,
      entry: { id: 'c' },
    });
    expect(standingOf([step('c', 'b', 'deleted'), step('b', 'a'), step('a', 'z', 'purged')])).toMatchObject({
      path: '/nc',
    });
    expect(
      standingOf([step('c', 'b'), step('b', 'a', 'deleted'), step('a', 'z'), step('z', 'y', 'purged')]),
    ).toMatchObject({ path: '/nb/nc', parentId: 'b', entry: { id: 'b' } });
  });

  test('of an entry without a parent is right below the root', () => {
    expect(standingOf([step('c', null, 'deleted')])).toMatchObject({ path: '/nc', parentId: null, entry: { id: 'c' } });
  });

  test('is refused where the way up was cut off', () => {
    expect(() => standingOf([step('b', 'a'), step('a', 'z')])).toThrow(
      expect.objectContaining({ code: 'state_conflict' }),
    );
  });
});
