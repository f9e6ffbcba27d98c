import { Readable } from 'node:stream';
import { AppError, unavailable } from '@stowage/common/errors';

const bufferBytes = 256 * 1024;

/** What a RemoteStream is made of. */
export interface RemoteContent {
  /** The body of the answer. */
  body: Readable;
  /** How many bytes it has to have. */
  length: number;
  /** How long it may be silent while somebody waits for it, in milliseconds. */
  idleMs: number;
  /** Closes the connection. Called once, in any case; harmless when the answer was read to its end. */
  release: () => void;
}

/**
 * Content that comes from a server. Breaks with `unavailable` when it is shorter or longer than it should be, falls silent
 * or breaks off, and with the signal's reason (where that is an AppError); never ends short.
 */
export class RemoteStream extends Readable {
  readonly #content: RemoteContent;
  readonly #signal: AbortSignal;
  #silence: NodeJS.Timeout | null = null;
  #left: number;
  #ended = false;

  constructor(content: RemoteContent, signal: AbortSignal) {
    super({ highWaterMark: bufferBytes });
    this.#content = content;
    this.#signal = signal;
    this.#left = content.length;
    // A caller may have left before anybody listens: that must not bring the process down.
    this.on('error', () => undefined);
    const { body } = content;
    body.on('data', this.#onData).on('end', this.#onEnd).pause();
    body.on('error', (error) => this.#break('The connection to the backend broke off.', error));
    body.on('close', () => this.#break('The connection to the backend broke off.'));
    if (signal.aborted) this.#onAbort();
    signal.addEventListener('abort', this.#onAbort, { once: true });
  }

  override _read(): void {
    if (this.#ended) return;
    this.#silence ??= setTimeout(() => this.#break('The backend was silent for too long.'), this.#content.idleMs);
    this.#content.body.resume();
  }

  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    this.#stopClock();
    this.#signal.removeEventListener('abort', this.#onAbort);
    this.#content.release();
    callback(error);
  }

  #onData = (piece: Buffer): void => {
    this.#left -= piece.length;
    if (this.#left < 0) return this.#break('The content is longer than it should be.');
    this.#silence?.refresh();
    if (this.push(piece)) return;
    this.#content.body.pause();
    // A reader may take all the time that it wants.
    this.#stopClock();
  };

  #onEnd = (): void => {
    if (this.#left > 0) return this.#break('The content is shorter than it should be.');
    this.#ended = true;
    this.#stopClock();
    this.push(null);
  };

  #onAbort = (): void => {
    const reason: unknown = this.#signal.reason;
    this.destroy(reason instanceof AppError ? reason : unavailable('The request was cancelled.'));
  };

  #stopClock(): void {
    if (this.#silence) clearTimeout(this.#silence);
    this.#silence = null;
  }

  #break(detail: string, cause?: unknown): void {
    if (!this.#ended) this.destroy(unavailable(detail, cause));
  }
}
