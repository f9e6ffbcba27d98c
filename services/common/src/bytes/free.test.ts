import { expect, test } from '@jest/globals';
import { free } from './free.ts';

test.each([4_096, 65_536, 1_048_576])('gives %i bytes back', (length) => {
  const bytes = Buffer.allocUnsafeSlow(length);
  free(bytes);
  expect([bytes.length, bytes.buffer.byteLength]).toEqual([0, 0]);
});

test('leaves alone what is a part of something larger, or shared', () => {
  const whole = Buffer.alloc(100_000, 1);
  for (const part of [whole.subarray(1), whole.subarray(0, 99_999), Buffer.from('pooled')]) {
    free(part);
    expect(part.length).toBeGreaterThan(0);
  }
  expect(whole.every((byte) => byte === 1)).toBe(true);
  const shared = Buffer.from(new SharedArrayBuffer(8_192));
  free(shared);
  expect(shared.length).toBe(8_192);
});
