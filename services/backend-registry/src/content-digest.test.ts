import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { createHash, randomBytes } from 'node:crypto';
import { chunkBytes } from '@stowage/common/content-chunks';
import { ContentDigest, digestOf } from './content-digest.ts';

describe('the digest of content', () => {
  test('uses the CRC-32C of RFC 3720: its check value comes out', () => {
    const digest = new ContentDigest();
    digest.update(Buffer.from('123456789'));
    expect(digest.facts().chunkCrc32c.toString('hex')).toBe('e3069283');
  });

  test('of nothing has no chunk', () => {
    const { sha256, chunkCrc32c, head, size } = new ContentDigest().facts();
    expect({ size, chunks: chunkCrc32c.length, head: head.length }).toEqual({ size: 0, chunks: 0, head: 0 });
    expect(sha256).toEqual(createHash('sha256').digest());
  });

  test('has one sum a MiB, and none for a last chunk of no bytes', () => {
    for (const size of [1, chunkBytes - 1, chunkBytes, chunkBytes + 1, 70 * chunkBytes + 3]) {
      const content = randomBytes(size);
      const digest = new ContentDigest();
      digest.update(content);
      expect(digest.facts().chunkCrc32c).toEqual(referenceSums(content));
    }
  });

  test('is the same however the content is cut, and a copy goes its own way', () => {
    const cuts = fc.array(fc.integer({ min: 0, max: 3 * chunkBytes }), { maxLength: 12 });
    fc.assert(
      fc.property(cuts, fc.integer({ min: 0, max: 3 * chunkBytes }), (places, size) => {
        const content = randomBytes(size);
        const edges = [0, ...places.map((place) => Math.min(place, size)), size].sort((a, b) => a - b);
        let digest = new ContentDigest();
        for (const [index, edge] of edges.entries()) {
          const before = digest;
          digest = digest.clone();
          before.update(Buffer.from('what the copy must not see'));
          digest.update(content.subarray(edge, edges[index + 1] ?? size));
        }
        const facts = digest.facts();
        expect(facts.size).toBe(size);
        expect(facts.sha256).toEqual(createHash('sha256').update(content).digest());
        expect(facts.chunkCrc32c).toEqual(referenceSums(content));
        expect(facts.head).toEqual(content.subarray(0, 4_100));
        expect(digest.facts()).toEqual(facts);
      }),
      { numRuns: 25 },
    );
  });

  test('of a stream that breaks is none', async () => {
    const broken = (async function* () {
      yield Buffer.from('abc');
      throw new Error('broken');
    })();
    await expect(digestOf(broken)).rejects.toThrow('broken');
  });
});

const table = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? (value >>> 1) ^ 0x82f63b78 : value >>> 1;
  return value;
});

function referenceCrc(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = (crc >>> 8) ^ (table[(crc ^ byte) & 0xff] ?? 0);
  return ~crc >>> 0;
}

function referenceSums(content: Buffer): Buffer {
  const sums = Buffer.alloc(Math.ceil(content.length / chunkBytes) * 4);
  for (let at = 0, index = 0; at < content.length; at += chunkBytes, index += 1) {
    sums.writeUInt32BE(referenceCrc(content.subarray(at, at + chunkBytes)), index * 4);
  }
  return sums;
}
