import type { Readable } from 'node:stream';
import { AppError, unavailable } from '@stowage/common/errors';

/** How much is gathered before it is handed on, in bytes. */
const batchBytes = 1024 * 1024;

/** What a piece counts for at least, so that a body of one-byte pieces fills neither memory nor one writev. */
const leastPieceBytes = 1024;

/**
 * Gathers a body into batches of about 1 MiB with back-pressure: while one is being written, one more is gathered,
 * and then the body is paused. Listens to events, because an iterator costs a promise for each 64 KiB and can't be
 * left while it waits. Never destroys the body.
 */
export class BodyBatches {
  readonly #body: Readable;
  readonly #signal: AbortSignal;
  readonly #broken: string;
  #pieces: Buffer[] = [];
  #weight = 0;
  #ended = false;
  #failure: Error | null = null;
  #wake: () => void = () => undefined;

  /** `broken` is what is thrown when the body breaks with an error that is no AppError. */
  constructor(body: Readable, signal: AbortSignal, broken = 'The connection broke off: ask for the offset and go on.') {
    this.#body = body;
    this.#signal = signal;
    this.#broken = broken;
    // Stays for good: what breaks after we have turned away must not bring the process down.
    body.on('error', this.#onBroken);
    if (body.readableEnded) this.#ended = true;
    else if (body.destroyed) this.#onBroken();
    else if (signal.aborted) this.#onAbort();
    else this.#listen();
  }

  /**
   * The next pieces; null after the last ones of a body that ended well. When the body broke off, or the signal was
   * aborted, what was gathered comes first, and then this throws (the signal's reason where that is an Error).
   */
  async next(): Promise<Buffer[] | null> {
    while (this.#weight < batchBytes && !this.#ended && !this.#failure) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    if (this.#pieces.length > 0) return this.#take();
    if (this.#failure) throw this.#failure;
    return null;
  }

  /** Turns away from the body and leaves it as it is, paused. */
  stop(): void {
    this.#body.off('data', this.#onData).off('end', this.#onEnd).off('close', this.#onClose);
    this.#signal.removeEventListener('abort', this.#onAbort);
    if (!this.#ended) this.#body.pause();
  }

  #listen(): void {
    this.#signal.addEventListener('abort', this.#onAbort, { once: true });
    this.#body.on('end', this.#onEnd).on('close', this.#onClose).on('data', this.#onData).resume();
  }

  #take(): Buffer[] {
    const pieces = this.#pieces;
    this.#pieces = [];
    this.#weight = 0;
    if (!this.#ended && !this.#failure) this.#body.resume();
    return pieces;
  }

  #onData = (piece: Buffer): void => {
    this.#pieces.push(piece);
    this.#weight += Math.max(piece.length, leastPieceBytes);
    if (this.#weight < batchBytes) return;
    this.#body.pause();
    this.#wake();
  };

  #onEnd = (): void => {
    this.#ended = true;
    this.#wake();
  };

  #onBroken = (error?: unknown): void => {
    if (this.#ended) return;
    this.#fail(error instanceof AppError ? error : unavailable(this.#broken, error));
  };

  #onClose = (): void => this.#onBroken();

  #onAbort = (): void => {
    const reason: unknown = this.#signal.reason;
    this.#fail(reason instanceof Error ? reason : unavailable('The request was cancelled.'));
  };

  #fail(failure: Error): void {
    this.#failure ??= failure;
    this.#body.pause();
    this.#wake();
  }
}
