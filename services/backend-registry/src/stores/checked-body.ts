import { createHash } from 'node:crypto';
import type { Readable } from 'node:stream';
import { AppError } from '@stowage/common/errors';
import type { ExpectedContent } from './blob-store.ts';
import { BodyBatches } from './body-batches.ts';

const broken = 'The content broke off before it was whole.';

/**
 * A body whose length and sha256 are checked on the way. The last batch is held back until both were found right, so
 * that whoever hands on what it gives can't hand on the whole of something wrong. Memory: about 3 MiB. Never destroys
 * the body and never frees its pieces.
 */
export class CheckedBody {
  readonly #expected: ExpectedContent;
  readonly #batches: BodyBatches;
  readonly #hash = createHash('sha256');
  #seen = 0;
  #held: Buffer[] | null = null;
  #right = false;

  /** `signal` aborted breaks it, with its reason where that is an Error. */
  constructor(expected: ExpectedContent, body: Readable, signal: AbortSignal) {
    this.#expected = expected;
    this.#batches = new BodyBatches(body, signal, broken);
  }

  /**
   * The next pieces, null after the last ones. Throws `upload_incomplete` as soon as the body is longer, or ends before it
   * should, `checksum_mismatch` when it is another one, and what broke it.
   */
  async next(): Promise<Buffer[] | null> {
    for (;;) {
      const batch = await this.#batches.next();
      const held = this.#held;
      this.#held = batch;
      if (batch) this.#count(batch);
      else this.#requireRight();
      if (held || !batch) return held;
    }
  }

  /** Turns away from the body and leaves it as it is, paused. */
  stop(): void {
    this.#held = null;
    this.#batches.stop();
  }

  #count(batch: Buffer[]): void {
    for (const piece of batch) {
      this.#seen += piece.length;
      this.#hash.update(piece);
    }
    if (this.#seen > this.#expected.size) throw incomplete('longer');
  }

  #requireRight(): void {
    if (this.#right) return;
    if (this.#seen < this.#expected.size) throw incomplete('shorter');
    this.#right = this.#hash.digest().equals(this.#expected.sha256);
    if (!this.#right) throw new AppError('checksum_mismatch', 'The content has another SHA-256 than it should have.');
  }
}

function incomplete(how: string): AppError {
  return new AppError('upload_incomplete', `The content is ${how} than it should be.`);
}
