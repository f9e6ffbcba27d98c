import { unavailable } from '@stowage/common/errors';
import type { StoreCall, Wrapper } from './wrapped-store.ts';

export interface LimitOptions {
  /** How many calls are under way at once; a read counts until its first byte, and an append does not, as their clients may take all their time. */
  most: number;
  /** How long a call may wait for its turn, in milliseconds. */
  waitMs: number;
}

/** Lets so many calls through at once; the others wait in their order, and are `unavailable` when that takes too long. */
export class ConcurrencyLimit implements Wrapper {
  readonly #options: LimitOptions;
  readonly #waiting = new Set<() => void>();
  #running = 0;

  constructor(options: LimitOptions) {
    this.#options = options;
  }

  async around<R>(call: StoreCall<R>): Promise<R> {
    if (call.name === 'append') return call.run();
    if (this.#running < this.#options.most) this.#running += 1;
    else await this.#turn(call.signal);
    try {
      return await call.run();
    } finally {
      this.#release();
    }
  }

  /** Resolves when a place was handed on to it. */
  async #turn(signal: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const leave = (detail: string): void => {
      if (this.#waiting.delete(resolve)) reject(unavailable(detail));
    };
    const timer = setTimeout(() => leave('The backend is too busy.'), this.#options.waitMs);
    const onAbort = (): void => leave('The request was cancelled.');
    this.#waiting.add(resolve);
    if (signal.aborted) onAbort();
    signal.addEventListener('abort', onAbort, { once: true });
    try {
      await promise;
    } finally {
      clearTimeout(timer);
      signal.removeEventListener('abort', onAbort);
    }
  }

  #release(): void {
    const [next] = this.#waiting;
    if (!next) {
      this.#running -= 1;
      return;
    }
    this.#waiting.delete(next);
    next();
  }
}
