import { expect, test } from '@jest/globals';
import fc from 'fast-check';
import { whyKept } from './removal-gate.ts';

const facts = fc.record({
  listed: fc.nat({ max: 1_000 }),
  removable: fc.nat({ max: 1_000 }),
  removed: fc.nat({ max: 100 }),
  held: fc.boolean(),
  adminsWord: fc.boolean(),
});

test('unknown objects go only while nothing is held and at most a tenth of all goes in a run, or by an admin’s word', () => {
  fc.assert(
    fc.property(facts, (given) => {
      const may = whyKept(given) === null;
      const few = (given.removable + given.removed) * 10 <= given.listed;
      expect(may).toBe(given.adminsWord || given.removable === 0 || (!given.held && few));
    }),
    { numRuns: 5_000 },
  );
});

test('a crash in the middle does not make room for more', () => {
  const half = { listed: 100, removable: 6, removed: 5, held: false, adminsWord: false };
  expect(whyKept(half)).toBe('too_many');
  expect(whyKept({ ...half, removable: 5 })).toBeNull();
});
