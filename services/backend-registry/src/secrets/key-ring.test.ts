import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { randomBytes } from 'node:crypto';
import { KeyRing, keyBytes, parseSecretKeys, SealError } from './key-ring.ts';

const key = (id: string) => ({ id, key: randomBytes(keyBytes) });
const context = ['backend', 'one', 'password'];

describe('a sealed secret', () => {
  const [first, second] = [key('first'), key('second')];

  test('opens with its key and its context, whatever it is', () => {
    const ring = new KeyRing([first]);
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), fc.array(fc.string()), (text, bound) => {
        expect(ring.open(ring.seal(text, bound), bound)).toBe(text);
      }),
    );
  });

  test('opens in no other context', () => {
    const ring = new KeyRing([first]);
    const sealed = ring.seal('hush', context);
    for (const other of [
      ['backend', 'two', 'password'],
      ['backend', 'one', 'username'],
      ['backendone', 'password'],
      [],
    ]) {
      expect(() => ring.open(sealed, other)).toThrow(SealError);
    }
  });

  test('opens with no other key, not even one of the same id, and not under another id', () => {
    const sealed = new KeyRing([first]).seal('hush', context);
    expect(() => new KeyRing([second]).open(sealed, context)).toThrow(/no key "first"/);
    expect(() => new KeyRing([{ ...second, id: 'first' }]).open(sealed, context)).toThrow(SealError);
    const renamed = new KeyRing([{ ...first, id: 'renamed' }]);
    expect(() => renamed.open({ ...sealed, keyId: 'renamed' }, context)).toThrow(SealError);
  });

  test('does not open with any bit flipped or byte missing', () => {
    const ring = new KeyRing([first]);
    const { keyId, nonce, sealed } = ring.seal('hush', context);
    for (let bit = 0; bit < sealed.length * 8; bit += 1) {
      const flipped = Buffer.from(sealed);
      flipped.writeUInt8(flipped.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3);
      expect(() => ring.open({ keyId, nonce, sealed: flipped }, context)).toThrow(SealError);
    }
    for (let length = 0; length < sealed.length; length += 1) {
      expect(() => ring.open({ keyId, nonce, sealed: sealed.subarray(0, length) }, context)).toThrow(SealError);
    }
    expect(() => ring.open({ keyId, nonce: nonce.subarray(1), sealed }, context)).toThrow(SealError);
  });

  test('is sealed by the first key and opened by all', () => {
    const old = new KeyRing([first]).seal('hush', context);
    const ring = new KeyRing([second, first]);
    expect(ring.open(old, context)).toBe('hush');
    expect(ring.seal('hush', context).keyId).toBe('second');
  });

  test('is never sealed to the same bytes twice', () => {
    const ring = new KeyRing([first]);
    const sealed = Array.from({ length: 100 }, () => ring.seal('hush', context).sealed.toString('hex'));
    expect(new Set(sealed).size).toBe(100);
  });
});

describe('STOWAGE_SECRET_KEYS', () => {
  const encoded = randomBytes(keyBytes).toString('base64');

  test('holds one key or several', () => {
    expect(parseSecretKeys(`a:${encoded}`)).toEqual([{ id: 'a', key: Buffer.from(encoded, 'base64') }]);
    expect(parseSecretKeys(` a:${encoded} , b.2:${encoded}`).map(({ id }) => id)).toEqual(['a', 'b.2']);
  });

  test.each([
    ['nothing', ','],
    ['no id', encoded],
    ['hex and no id', randomBytes(32).toString('hex')],
    ['an empty id', `:${encoded}`],
    ['an id with a space', `a b:${encoded}`],
    ['a key that is too short', `a:${randomBytes(31).toString('base64')}`],
    ['a key that is too long', `a:${randomBytes(33).toString('base64')}`],
    ['a key in hex', `a:${randomBytes(32).toString('hex')}`],
    ['a key of zeros', `a:${Buffer.alloc(32).toString('base64')}`],
    ['one id twice', `a:${encoded},a:${randomBytes(32).toString('base64')}`],
  ])('with %s is refused, and the key is not quoted', (_what, text) => {
    expect(() => parseSecretKeys(text)).toThrow(/^must|^holds/);
    try {
      parseSecretKeys(text);
    } catch (error) {
      const quoted = text.split(/[:,]/).filter((part) => part.length > 20 && String(error).includes(part));
      expect(quoted).toEqual([]);
    }
  });
});
