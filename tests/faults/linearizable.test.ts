import { expect, test } from '@jest/globals';
import { isLinearizable } from './support/linearizable.ts';
import type { Operation } from './support/linearizable.ts';

const write = (call: number, returned: number, value: string): Operation<string> => ({
  call,
  returned,
  apply: () => value,
});
const read = (call: number, returned: number, value: string): Operation<string> => ({
  call,
  returned,
  apply: (state) => (state === value ? state : undefined),
});

test('a read beside a write may see the old value or the new one', () => {
  expect(isLinearizable([write(0, 10, 'new'), read(1, 2, 'old')], 'old')).toBe(true);
  expect(isLinearizable([write(0, 10, 'new'), read(1, 2, 'new')], 'old')).toBe(true);
});

test('a read after a write that sees the value of before is found', () => {
  expect(isLinearizable([write(0, 1, 'new'), read(2, 3, 'old')], 'old')).toBe(false);
});

test('two reads that see a write in the wrong order are found', () => {
  expect(isLinearizable([write(0, 10, 'new'), read(1, 2, 'new'), read(3, 4, 'old')], 'old')).toBe(false);
});
