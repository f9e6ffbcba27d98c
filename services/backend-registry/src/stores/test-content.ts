import { createCipheriv, createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import type { BlobStore, ExpectedContent } from './blob-store.ts';
import { never } from './test-store.ts';

const pieceBytes = 64 * 1024;

/** Content that is made while it is read: any size at the cost of no memory. */
export interface TestContent extends ExpectedContent {
  sha256: Buffer;
  /** A new body with all of it. */
  body(): Readable;
  /** The bytes of a range. */
  slice(start: number, end: number): Buffer;
}

/** Content of `size` bytes that looks random, and is the same for the same seed. */
export function seededContent(size: number, seed: number): TestContent {
  const hash = createHash('sha256');
  for (const piece of pieces(seed, size)) hash.update(piece);
  return {
    size,
    sha256: hash.digest(),
    body: () => Readable.from(pieces(seed, size), { objectMode: false }),
    slice: (start, end) => {
      const first = Math.floor(start / pieceBytes) * pieceBytes;
      return Buffer.concat([...pieces(seed, end - first, first)]).subarray(start - first, end - first);
    },
  };
}

/** Writes all of it. */
export async function writeContent(store: BlobStore, key: string, content: TestContent): Promise<void> {
  await store.write(key, content, content.body(), never);
}

/** The SHA-256 of a range of a blob. */
export async function digestOfBlob(store: BlobStore, key: string, start: number, end: number): Promise<Buffer> {
  const hash = createHash('sha256');
  const stream = await store.read(key, { start, end }, never);
  for await (const piece of stream) hash.update(piece);
  return hash.digest();
}

/** A body that gives `pieces` and then waits until `end` or `fail`; `waiting` resolves when all were taken. */
export function heldBody(pieces: readonly Buffer[]): {
  body: Readable;
  waiting: Promise<void>;
  end(last: Buffer): void;
} {
  const waiting = Promise.withResolvers<void>();
  const left = [...pieces];
  const body = new Readable({
    highWaterMark: 1,
    read: () => {
      const next = left.shift();
      if (next) body.push(next);
      else waiting.resolve();
    },
  });
  const end = (last: Buffer): void => {
    body.push(last);
    body.push(null);
  };
  return { body, waiting: waiting.promise, end };
}

function* pieces(seed: number, size: number, from = 0): Generator<Buffer> {
  const counter = Buffer.alloc(16);
  counter.writeUInt32BE(seed, 0);
  counter.writeBigUInt64BE(BigInt(from / 16), 8);
  const cipher = createCipheriv('aes-128-ctr', Buffer.alloc(16), counter);
  for (let at = 0; at < size; at += pieceBytes) yield cipher.update(Buffer.alloc(Math.min(pieceBytes, size - at)));
}
