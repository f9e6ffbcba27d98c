import { unavailable } from '@stowage/common/errors';

/** How long a store over the network may take. Given as a whole, so that tests can be impatient. */
export interface StoreLimits {
  /** Until a connection stands, in milliseconds. */
  connectMs: number;
  /** For a call that moves no content, from its beginning to the end of its answer, in milliseconds. */
  callMs: number;
  /** For the store to put together what was sent in parts, in milliseconds. */
  completeMs: number;
  /** For content that moves: without one byte, in milliseconds. */
  idleMs: number;
}

export const usualLimits: StoreLimits = { connectMs: 5_000, callMs: 30_000, completeMs: 120_000, idleMs: 30_000 };

/** Aborts its signal with `unavailable` when nothing was heard of for `limitMs`, or when the signal it follows is aborted. */
export class IdleLimit {
  readonly signal: AbortSignal;
  readonly #timer: NodeJS.Timeout;

  constructor(limitMs: number, follows: AbortSignal) {
    const own = new AbortController();
    this.#timer = setTimeout(() => own.abort(unavailable('The backend was silent for too long.')), limitMs);
    this.signal = AbortSignal.any([own.signal, follows]);
  }

  /** Something moved: the time begins anew. */
  touch(): void {
    this.#timer.refresh();
  }

  stop(): void {
    clearTimeout(this.#timer);
  }
}
