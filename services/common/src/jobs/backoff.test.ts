import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { backoffMs } from './backoff.ts';

describe('the wait before the next attempt', () => {
  test('is anything from 0 up to a bound that doubles, and never over 15 minutes', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 1_000 }),
        fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
        (attempt, random) => {
          const ms = backoffMs(attempt, () => random);
          expect(Number.isInteger(ms)).toBe(true);
          expect(ms).toBeGreaterThanOrEqual(0);
          expect(ms).toBeLessThan(Math.min(15 * 60_000, 1_000 * 2 ** (attempt - 1)));
        },
      ),
    );
    expect(backoffMs(3, () => 0.999_999)).toBe(3_999);
  });
});
