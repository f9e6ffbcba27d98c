import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { parseJsonBody } from './json-body.ts';

const refused = expect.objectContaining({ code: 'validation_failed' });

describe('a JSON body', () => {
  test('that is empty is {}', () => expect(parseJsonBody(Buffer.alloc(0))).toEqual({}));

  test('comes out as it went in, up to 32 levels', () => {
    fc.assert(
      fc.property(fc.json({ maxDepth: 20 }), (text) => {
        if (text.includes('__proto__')) return;
        expect(parseJsonBody(Buffer.from(text))).toEqual(JSON.parse(text));
      }),
    );
    const deep = '['.repeat(32) + ']'.repeat(32);
    expect(() => parseJsonBody(Buffer.from(deep))).not.toThrow();
  });

  test.each([
    ['broken', '{"a":'],
    ['33 levels deep', '['.repeat(33) + ']'.repeat(33)],
    ['100,000 levels deep', '['.repeat(100_000)],
    ['a number out of bounds', '{"a":1e400}'],
    ['10,001 values', `[${'1,'.repeat(10_000)}1]`],
    ['a prototype', '{"__proto__":{"admin":true}}'],
    ['a nested prototype', '{"a":[{"\\u005f_proto__":1}]}'],
  ])('that holds %s is refused', (_name, text) => {
    expect(() => parseJsonBody(Buffer.from(text))).toThrow(refused);
  });

  test('that is not UTF-8 is refused', () => {
    expect(() => parseJsonBody(Buffer.from([0x22, 0xff, 0x22]))).toThrow(refused);
  });

  test('with half a character in a text or key is refused, and told where', () => {
    for (const half of ['\\ud800', '\\uDFFF', 'a\\udc00\\ud800b']) {
      const text = `{"a":{"b/c":["ok","${half}"]}}`;
      const members = { errors: [expect.objectContaining({ pointer: '/a/b~1c/1' })] };
      expect(() => parseJsonBody(Buffer.from(text))).toThrow(
        expect.objectContaining({ code: 'validation_failed', members }),
      );
      expect(() => parseJsonBody(Buffer.from(`{"${half}":1}`))).toThrow(refused);
    }
    expect(parseJsonBody(Buffer.from('{"a":"\\ud83d\\ude00"}'))).toEqual({ a: '\u{1f600}' });
  });

  test('with 10,000 values is taken', () => {
    expect(parseJsonBody(Buffer.from(`[${'1,'.repeat(9_999)}1]`))).toHaveLength(10_000);
  });

  test('brackets and commas inside strings are no depth and no values', () => {
    const text = JSON.stringify({ name: '[{"\\'.repeat(100) + ','.repeat(20_000) });
    expect(() => parseJsonBody(Buffer.from(text))).not.toThrow();
  });
});
