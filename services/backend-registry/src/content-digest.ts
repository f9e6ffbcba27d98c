import { createHash } from 'node:crypto';
import type { Hash } from 'node:crypto';
import { crc32c } from '@node-rs/crc32';
import { chunkBytes } from '@stowage/common/content-chunks';

/** How much of the beginning is kept, for telling the media type. */
const headBytes = 4_100;

/** What is known of content that was seen from its first byte to its last. */
export interface ContentFacts {
  size: number;
  sha256: Buffer;
  /** CRC-32C (RFC 3720) of each MiB, 4 bytes each, big endian. */
  chunkCrc32c: Buffer;
  head: Buffer;
}

/** Follows content as it grows: SHA-256 of all, CRC-32C of each MiB, the first bytes. Costs 4 KiB for each GiB. */
export class ContentDigest {
  #hash: Hash;
  #size = 0;
  #head: Buffer = Buffer.alloc(0);
  /** Of the chunks that are whole; grows by doubling. */
  #sums: Buffer = Buffer.alloc(64);
  /** Of the chunk that is not whole yet. */
  #sum = 0;

  constructor() {
    this.#hash = createHash('sha256');
  }

  /** How many bytes were seen. */
  get size(): number {
    return this.#size;
  }

  /** Roughly what this takes in memory, in bytes. */
  get footprint(): number {
    return this.#sums.length + this.#head.length + 512;
  }

  update(piece: Uint8Array): void {
    this.#hash.update(piece);
    if (this.#head.length < headBytes) {
      this.#head = Buffer.concat([this.#head, piece.subarray(0, headBytes - this.#head.length)]);
    }
    for (let at = 0; at < piece.length;) {
      const room = chunkBytes - (this.#size % chunkBytes);
      const part = piece.subarray(at, at + room);
      this.#sum = crc32c(part, this.#sum);
      this.#size += part.length;
      at += part.length;
      if (part.length === room) this.#closeChunk();
    }
  }

  /** An independent copy. */
  clone(): ContentDigest {
    const copy = new ContentDigest();
    copy.#hash = this.#hash.copy();
    copy.#size = this.#size;
    copy.#head = this.#head;
    copy.#sums = Buffer.from(this.#sums);
    copy.#sum = this.#sum;
    return copy;
  }

  /** What is known so far; may be asked again and again. */
  facts(): ContentFacts {
    const whole = Math.floor(this.#size / chunkBytes);
    const sums = Buffer.alloc(Math.ceil(this.#size / chunkBytes) * 4);
    this.#sums.copy(sums, 0, 0, whole * 4);
    if (sums.length > whole * 4) sums.writeUInt32BE(this.#sum, whole * 4);
    return { size: this.#size, sha256: this.#hash.copy().digest(), chunkCrc32c: sums, head: this.#head };
  }

  #closeChunk(): void {
    const index = this.#size / chunkBytes - 1;
    if (this.#sums.length < (index + 1) * 4) this.#sums = Buffer.concat([this.#sums, Buffer.alloc(this.#sums.length)]);
    this.#sums.writeUInt32BE(this.#sum, index * 4);
    this.#sum = 0;
  }
}

/** The digest of a whole stream, which is read to its end. Errors of the stream are thrown on. */
export async function digestOf(stream: AsyncIterable<Uint8Array>): Promise<ContentDigest> {
  const digest = new ContentDigest();
  for await (const piece of stream) digest.update(piece);
  return digest;
}
