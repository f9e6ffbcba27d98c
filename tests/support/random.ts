import { createCipheriv, randomInt } from 'node:crypto';

/** Numbers that look random and are the same for the same seed (mulberry32). */
export class Random {
  readonly seed: number;
  #state: number;

  constructor(seed: number) {
    this.seed = seed;
    this.#state = seed >>> 0;
  }

  /** From 0 up to, not including, 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  }

  /** A whole number, both bounds included. */
  integer(min: number, max: number): number {
    return min + Math.floor(this.next() * (max - min + 1));
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  /** The same items in another order. */
  shuffled<T>(items: readonly T[]): T[] {
    return items
      .map((item) => ({ item, at: this.next() }))
      .sort((a, b) => a.at - b.at)
      .map(({ item }) => item);
  }

  /** Fast for any length: a key stream of AES. */
  bytes(length: number): Buffer {
    const key = Buffer.alloc(16);
    for (let at = 0; at < key.length; at += 4) key.writeUInt32LE(Math.floor(this.next() * 4_294_967_296), at);
    return createCipheriv('aes-128-ctr', key, Buffer.alloc(16)).update(Buffer.alloc(length));
  }

  /** An independent stream of numbers. */
  fork(): Random {
    return new Random(this.integer(0, 0xffff_ffff));
  }
}

/** The seed of a fault test: STOWAGE_TEST_SEED, to repeat a run, else a new one. The test prints it. */
export function chooseSeed(): number {
  const given = process.env['STOWAGE_TEST_SEED'];
  return given === undefined ? randomInt(2 ** 31) : Number(given);
}
