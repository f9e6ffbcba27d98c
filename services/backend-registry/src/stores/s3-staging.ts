import { Readable } from 'node:stream';
import { setTimeout } from 'node:timers/promises';
import { AppError } from '@stowage/common/errors';
import type { Append, StagedContent } from './blob-store.ts';
import { appendToS3 } from './s3-append.ts';
import { assemble, leastPart, mayPass } from './s3-assemble.ts';
import type { S3Connection } from './s3-connection.ts';
import { s3Error } from './s3-errors.ts';
import { mebibyte } from './s3-multipart.ts';
import { readRange } from './s3-read.ts';
import { Segments } from './s3-segments.ts';
import type { Segment, Staged } from './s3-segments.ts';
import { fences, StagedClaims } from './staged-claims.ts';
import type { Claim } from './staged-claims.ts';

/** Beyond so many segments those that are small are made one. */
const usualMostSegments = 1_000;

/** What is small: most appends were of about this or less, in bytes. */
const smallBytes = 64 * mebibyte;

/** So often a segment may break while it is read, each time after a longer pause. */
const mostBreaks = 3;
const breakMs = 300;

/** Growing content in a bucket, as segments. Each method as AppendableStore says. */
export class S3Staging {
  readonly #s3: S3Connection;
  readonly #segments: Segments;
  readonly #claims = new StagedClaims();
  readonly #mostSegments: number;

  constructor(s3: S3Connection, mostSegments: number = usualMostSegments) {
    this.#s3 = s3;
    this.#segments = new Segments(s3);
    this.#mostSegments = mostSegments;
  }

  async create(id: string): Promise<void> {
    if (!(await this.#segments.find(id))) await this.#segments.make(id);
  }

  async offset(id: string): Promise<number | null> {
    while (this.#claims.held(id)) {
      const counted = await this.#claims.counted(id);
      if (counted !== undefined) return counted;
    }
    const claim = await this.#claims.take(id, fences.look);
    try {
      const staged = await this.#segments.find(id);
      claim.found(staged?.offset ?? null);
      return staged?.offset ?? null;
    } finally {
      claim.release();
    }
  }

  async append(append: Append, body: Readable, signal: AbortSignal): Promise<number> {
    const claim = await this.#claims.take(append.stagedId, append.fence, signal);
    try {
      const staged = await this.#begin(append, claim);
      return await appendToS3({ s3: this.#s3, segments: this.#segments, claim }, append, staged, body);
    } finally {
      claim.release();
    }
  }

  /** Has `check` look at the content and then moves it to `objectKey`, by copies that the server makes. */
  async seal(
    id: string,
    objectKey: string,
    check: (content: StagedContent, signal: AbortSignal) => Promise<void>,
  ): Promise<boolean> {
    const claim = await this.#claims.take(id, fences.seal);
    try {
      const staged = await this.#segments.find(id);
      claim.found(staged?.offset ?? null);
      if (!staged) return false;
      await check({ size: staged.offset, read: (signal) => this.#read(staged, signal) }, claim.signal);
      claim.signal.throwIfAborted();
      // What is sealed does not change any more.
      await assemble(this.#s3, staged.segments, objectKey, { resume: true });
      await this.#segments.end(id);
      return true;
    } finally {
      claim.release();
    }
  }

  async discard(id: string): Promise<void> {
    const claim = await this.#claims.take(id, fences.discard);
    try {
      claim.found(null);
      await this.#segments.end(id);
    } finally {
      claim.release();
    }
  }

  async #begin(append: Append, claim: Claim): Promise<Staged> {
    const found = await this.#segments.find(append.stagedId);
    if (append.create) {
      if (found) throw new AppError('state_conflict', 'There is such an upload on this backend already.');
      claim.found(0);
      return { segments: [], offset: 0 };
    }
    claim.found(found?.offset ?? null);
    if (!found) throw new AppError('not_found', 'There is no such upload on this backend.');
    const { offset } = found;
    if (offset !== append.offset) {
      throw new AppError('offset_conflict', `The upload goes on at byte ${offset}.`, { members: { offset } });
    }
    if (offset > append.limit) throw new AppError('payload_too_large', 'The upload is longer than it may be.');
    if (found.segments.length > this.#mostSegments) await this.#compact(found.segments);
    return found;
  }

  /** Has the server make one segment of the small ones at the end, but for the last, which may still grow. */
  async #compact(segments: Segment[]): Promise<void> {
    const [last] = segments.slice(-1);
    const large = segments.findLastIndex((segment) => segment !== last && segment.size >= smallBytes);
    const small = segments.slice(large + 1, -1);
    const [first, ...others] = small;
    if (!first || others.length === 0 || small.some(({ size }) => size < leastPart)) return;
    await assemble(this.#s3, small, first.objectKey, { resume: false });
    await this.#segments.remove(others.map(({ objectKey }) => objectKey));
  }

  async #read(staged: Staged, signal: AbortSignal): Promise<Readable> {
    const { segments } = staged;
    const s3 = this.#s3;
    async function* pieces(): AsyncGenerator<Buffer> {
      for (const segment of segments) yield* readSegment(s3, segment, signal);
    }
    return Readable.from(pieces(), { objectMode: false });
  }
}

/** One connection of thousands that breaks must not have all that was read before read again. */
async function* readSegment(
  s3: S3Connection,
  { objectKey, size }: Segment,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  let at = 0;
  for (let failures = 0; at < size;) {
    try {
      for await (const piece of await readRange(s3, objectKey, { start: at, end: size }, signal)) {
        at += piece.length;
        yield piece;
      }
    } catch (error) {
      failures += 1;
      if (signal.aborted || failures > mostBreaks || !mayPass(s3Error(error))) throw error;
      await setTimeout(breakMs * failures, undefined, { signal }).catch(() => undefined);
    }
  }
}
