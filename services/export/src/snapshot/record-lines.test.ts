import { expect, test } from '@jest/globals';
import fc from 'fast-check';
import { RecordLines } from './record-lines.ts';

test('lines that come in pieces of any size become the elements of an array', () => {
  const line = fc.string({ unit: 'binary', minLength: 1, maxLength: 12 }).map((text) => text.replaceAll('\n', ' '));
  const cuts = fc.array(fc.nat(400), { maxLength: 30 });
  fc.assert(
    fc.property(fc.array(line, { maxLength: 20 }), cuts, (lines, at) => {
      const bytes = Buffer.from(lines.map((text) => `${text}\n`).join(''));
      const ends = [...new Set([...at.filter((end) => end < bytes.length), bytes.length])].sort((a, b) => a - b);
      const elements = new RecordLines();
      const pieces = ends.map((end, index) => elements.asElements(bytes.subarray(ends[index - 1] ?? 0, end)));
      const expected = Buffer.from(lines.map((text, index) => `${index > 0 ? ',' : ''}\n${text}`).join(''));
      expect(Buffer.concat(pieces).equals(expected)).toBe(true);
      expect(elements.count).toBe(lines.length);
    }),
    { numRuns: 1000 },
  );
});
