import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { AppError } from './errors.ts';
import { nameBytesMax, normalizeName } from './names.ts';

function refused(name: string): boolean {
  try {
    normalizeName(name);
    return false;
  } catch (error) {
    return error instanceof AppError && error.code === 'validation_failed';
  }
}

/** Any code unit, the troublesome ones often. */
const anyText = fc
  .array(
    fc.oneof(
      fc.integer({ min: 0, max: 0xffff }).map((unit) => String.fromCharCode(unit)),
      fc.constantFrom(
        '/',
        '\0',
        '\u0085',
        '\u009f',
        '\u007f',
        '\u202e',
        '\u2066',
        '\ud800',
        '\udc00',
        '\ufeff',
        ' ',
        '.',
        '\u3000',
        '\u2028',
      ),
      fc.constantFrom('a', 'é', 'e\u0301', '\u200f', '😀', '漢', 'Å', '\u1e9b\u0323'),
    ),
    { maxLength: 300 },
  )
  .map((units) => units.join(''));

/** The rule of contract §1 said once more, without regular expressions. */
function allowed(name: string): boolean {
  const normal = name.normalize('NFC');
  const bytes = new TextEncoder().encode(normal).length;
  if (bytes < 1 || bytes > 255 || normal === '.' || normal === '..' || normal.trim() !== normal) return false;
  for (const character of normal) {
    const point = character.codePointAt(0) ?? 0;
    if (character === '/' || point < 0x20 || (point >= 0x7f && point <= 0x9f)) return false;
    if ((point >= 0x202a && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069)) return false;
    if (point >= 0xd800 && point <= 0xdfff) return false;
  }
  return true;
}

describe('names', () => {
  test('a name is taken exactly when the contract allows it', () => {
    fc.assert(
      fc.property(anyText, (name) => expect(refused(name)).toBe(!allowed(name))),
      { numRuns: 5_000 },
    );
  });

  test('a name that is taken is in NFC, fits, and is left alone the second time', () => {
    fc.assert(
      fc.property(anyText, (name) => {
        fc.pre(!refused(name));
        const normal = normalizeName(name);
        expect(normal).toBe(name.normalize('NFC'));
        expect(Buffer.byteLength(normal)).toBeLessThanOrEqual(nameBytesMax);
        expect(normalizeName(normal)).toBe(normal);
      }),
      { numRuns: 2_000 },
    );
  });

  test('255 bytes are taken and 256 are not, counted after NFC', () => {
    expect(refused('é'.repeat(127) + 'a')).toBe(false);
    expect(refused('e\u0301'.repeat(127) + 'a')).toBe(false);
    expect(refused('é'.repeat(128))).toBe(true);
  });

  test('a byte order mark, and marks of direction that override nothing, are taken inside a name', () => {
    expect(refused('a\ufeffb')).toBe(false);
    expect(refused('a\u200fb')).toBe(false);
    expect(refused('\ufeffa')).toBe(true);
  });

  test('the error points at the field', () => {
    expect(() => normalizeName('a/b', '/filename')).toThrow(
      expect.objectContaining({ members: { errors: [expect.objectContaining({ pointer: '/filename' })] } }),
    );
  });
});
