import { createHash } from 'node:crypto';
import type { Readable } from 'node:stream';
import { checksumError, takeBody } from './append-body.ts';
import type { Append } from './blob-store.ts';
import { leastPart } from './s3-assemble.ts';
import type { S3Connection } from './s3-connection.ts';
import { mebibyte } from './s3-multipart.ts';
import { readRange } from './s3-read.ts';
import { SegmentWriter } from './s3-segment-writer.ts';
import type { Segments, Staged } from './s3-segments.ts';
import type { Claim } from './staged-claims.ts';

/** What an append to S3 works with. */
export interface AppendNeeds {
  s3: S3Connection;
  segments: Segments;
  claim: Claim;
}

/** How large a segment grows that begins at `start`, in bytes: so that few make up even the longest upload. */
export function segmentSizeAt(start: number): number {
  const eighth = 8 * mebibyte;
  return Math.min(1024 * mebibyte, Math.max(eighth, Math.floor(start / 32 / eighth) * eighth));
}

/**
 * Appends a body to staged content that ends at `append.offset`, as AppendableStore.append says. What was written counts
 * segment by segment; with a checksum the body is one segment, so that it counts as a whole. Memory: about 12 MiB.
 */
export async function appendToS3(needs: AppendNeeds, append: Append, staged: Staged, body: Readable): Promise<number> {
  const hash = append.checksum ? createHash(append.checksum.algorithm) : null;
  const sink = new SegmentSink(needs, append, staged);
  append.observer.start(append.offset);
  let settled: number | null = null;
  try {
    const { failure } = await takeBody(append, body, needs.claim.signal, hash, (pieces, _position, onWritten) =>
      sink.write(pieces, onWritten),
    );
    if (sink.broken) {
      // So that whoever asks for the offset can go on from the beginning.
      if (append.create && sink.durable === 0) await needs.segments.make(append.stagedId).catch(() => undefined);
      throw failure;
    }
    const wrong = hash && append.checksum && !hash.digest().equals(append.checksum.digest) ? checksumError() : null;
    const refused = hash ? (failure ?? wrong) : null;
    if (refused === null) await sink.close();
    else await sink.abandon();
    if (append.create && sink.durable === 0) await needs.segments.make(append.stagedId);
    settled = sink.durable;
    if (refused ?? failure) throw refused ?? failure;
    return settled;
  } finally {
    await sink.abandon();
    append.observer.settle(settled);
  }
}

/** Puts what arrives into segments, one after the other. */
class SegmentSink {
  readonly #needs: AppendNeeds;
  readonly #append: Append;
  readonly #staged: Staged;
  #writer: SegmentWriter | null = null;
  /** Where the open segment begins. */
  #start = 0;
  /** Up to where the content counts. */
  durable: number;
  /** Writing failed: nobody knows what of the last segment counts. */
  broken = false;

  constructor(needs: AppendNeeds, append: Append, staged: Staged) {
    this.#needs = needs;
    this.#append = append;
    this.#staged = staged;
    this.durable = staged.offset;
  }

  async write(pieces: readonly Buffer[], onWritten: (bytes: number) => void): Promise<void> {
    try {
      for (const piece of pieces) {
        for (let at = 0; at < piece.length;) {
          const writer = (this.#writer ??= await this.#open());
          const room = this.#append.checksum ? Infinity : segmentSizeAt(this.#start) - writer.size;
          const part = piece.subarray(at, at + Math.max(1, room));
          await writer.add(part);
          at += part.length;
          onWritten(part.length);
          if (part.length >= room) await this.close();
        }
      }
    } catch (error) {
      this.broken = true;
      throw error;
    }
  }

  /** Makes what was written count, durably. */
  async close(): Promise<void> {
    const writer = this.#writer;
    if (!writer) return;
    await writer.close();
    this.#writer = null;
    this.durable = this.#start + writer.size;
    this.#needs.claim.raise(this.durable);
  }

  async abandon(): Promise<void> {
    await this.#writer?.abandon();
    this.#writer = null;
  }

  /** A small last segment is written anew with what follows, as no part of a blob but the last may be small. */
  async #open(): Promise<SegmentWriter> {
    const { s3, segments } = this.#needs;
    const tail = this.durable === this.#staged.offset ? this.#staged.segments.at(-1) : undefined;
    if (!tail || tail.size >= leastPart) {
      this.#start = this.durable;
      const objectKey = segments.keyOf(this.#append.stagedId, this.#start);
      return new SegmentWriter(s3, { objectKey, condition: { IfNoneMatch: '*' } });
    }
    this.#start = tail.start;
    const writer = new SegmentWriter(s3, { objectKey: tail.objectKey, condition: { IfMatch: tail.etag } });
    const signal = new AbortController().signal;
    for await (const piece of await readRange(s3, tail.objectKey, { start: 0, end: tail.size }, signal)) {
      await writer.add(Buffer.from(piece));
    }
    return writer;
  }
}
