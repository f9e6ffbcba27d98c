import type { Random } from '../../support/random.ts';

/** What becomes of the bytes of a replica. */
export type Mutation = 'bit flip' | 'truncation' | 'zero fill' | 'extension';

/** Those that a read can meet; what was added behind the end is never asked for. */
export const metByReads: readonly Mutation[] = ['bit flip', 'truncation', 'zero fill'];
export const mutations: readonly Mutation[] = [...metByReads, 'extension'];

export interface Mutated {
  bytes: Buffer;
  /** The first byte that is wrong, or is not there. */
  at: number;
}

const chunkBytes = 1024 * 1024;

/** Does that to a copy of `bytes`, at any place or at the edge of a chunk. */
export function mutate(kind: Mutation, bytes: Buffer, random: Random): Mutated {
  const at = placeIn(bytes.length, random);
  const changed = Buffer.from(bytes);
  switch (kind) {
    case 'bit flip':
      changed.writeUInt8(changed.readUInt8(at) ^ (1 << random.integer(0, 7)), at);
      return { bytes: changed, at };
    case 'truncation':
      return { bytes: changed.subarray(0, at), at };
    case 'zero fill': {
      const from = Math.max(0, Math.min(at, bytes.length - 64));
      changed.fill(0, from, Math.min(bytes.length, from + random.integer(64, 100_000)));
      const differs = changed.findIndex((byte, place) => byte !== bytes[place]);
      // A short one may have been zeros all along.
      return differs === -1 ? mutate('bit flip', bytes, random) : { bytes: changed, at: differs };
    }
    case 'extension':
      return { bytes: Buffer.concat([changed, random.bytes(random.integer(1, 5_000))]), at: bytes.length };
  }
}

/** A range of `size` bytes that has the byte `at` in it, whole chunks or not; null for all. */
export function rangeOver(at: number, size: number, random: Random): { first: number; last: number } | null {
  const chunk = Math.floor(at / chunkBytes) * chunkBytes;
  switch (random.integer(0, 4)) {
    case 0:
      return null;
    case 1:
      return { first: at, last: at };
    case 2:
      return { first: Math.max(0, chunk - 1), last: Math.min(size - 1, Math.max(at, chunk)) };
    case 3:
      return { first: at, last: Math.min(size - 1, chunk + chunkBytes) };
    default:
      return { first: random.integer(0, at), last: random.integer(at, size - 1) };
  }
}

function placeIn(size: number, random: Random): number {
  const edges = [0, size - 1, chunkBytes - 1, chunkBytes, chunkBytes + 1].filter((at) => at < size);
  return random.chance(0.4) ? (edges[random.integer(0, edges.length - 1)] ?? 0) : random.integer(0, size - 1);
}
