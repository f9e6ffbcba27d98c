import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { parseRange } from './ranges.ts';

describe('a Range header', () => {
  test.each([
    ['bytes=0-0', { start: 0, end: 1 }],
    ['bytes=0-', { start: 0, end: 100 }],
    ['bytes=99-', { start: 99, end: 100 }],
    ['bytes=-1', { start: 99, end: 100 }],
    ['bytes=-1000', { start: 0, end: 100 }],
    ['bytes=10-9999999999999999999', { start: 10, end: 100 }],
    ['BYTES=1-2', { start: 1, end: 3 }],
  ])('%s names a part', (header, range) => expect(parseRange(header, 100)).toEqual(range));

  test.each(['bytes=100-', 'bytes=9223372036854775808-', 'bytes=-0'])('%s lies outside', (header) =>
    expect(parseRange(header, 100)).toBe('unsatisfiable'),
  );

  test.each([
    undefined,
    '',
    'bytes',
    'bytes=',
    'bytes=-',
    'bytes=5-4',
    'bytes=a-b',
    'lines=0-1',
    'bytes=0-1,3-4',
    'bytes=0x1-2',
    'bytes=+1-2',
  ])('%s asks for the whole', (header) => expect(parseRange(header, 100)).toBeNull());

  test('nothing lies in an empty content', () => {
    expect(parseRange('bytes=0-', 0)).toBe('unsatisfiable');
    expect(parseRange('bytes=-5', 0)).toBe('unsatisfiable');
  });

  test('whatever comes, a part lies within the content', () => {
    fc.assert(
      fc.property(fc.nat(), fc.nat(), fc.nat(), (first, last, size) => {
        const range = parseRange(`bytes=${first}-${last}`, size);
        if (range === null || range === 'unsatisfiable') return first > last || first >= size;
        return range.start === first && range.start < range.end && range.end <= size;
      }),
    );
  });
});
