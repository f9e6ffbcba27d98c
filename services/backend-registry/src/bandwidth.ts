import { Readable } from 'node:stream';
import { setTimeout } from 'node:timers/promises';
import { AppError, unavailable } from '@stowage/common/errors';

/** What a transfer gets at least, in bytes a second: stores take one that hardly moves for dead. */
const leastShare = 256 * 1024;

/** However much there is to share: more transfers at once than this are the caller's to limit. */
const mostAtOnce = 64;

const sliceBytes = 64 * 1024;

/** Time as it is, or as a test wants it. Milliseconds. */
export interface Clock {
  now(): number;
  /** Rejects when the signal is aborted. */
  sleep(milliseconds: number, signal: AbortSignal): Promise<unknown>;
}

const realClock: Clock = {
  now: () => performance.now(),
  sleep: (milliseconds, signal) => setTimeout(milliseconds, undefined, { signal }),
};

/**
 * What background work of this process may move: in any time t no more than the rate times t and one second's worth. So few
 * transfers go on at a time that each has its share; the others wait in their order.
 */
export class Bandwidth {
  readonly #bytesPerSecond: number | null;
  readonly #clock: Clock;
  readonly #waiting = new Set<() => void>();
  #places: number;
  /** When all that was let through would have passed at exactly the rate. */
  #due = -Infinity;

  /** Null is no limit. */
  constructor(bytesPerSecond: number | null, clock: Clock = realClock) {
    this.#bytesPerSecond = bytesPerSecond;
    this.#clock = clock;
    this.#places = Math.min(mostAtOnce, Math.max(1, Math.floor((bytesPerSecond ?? 0) / leastShare)));
  }

  /** Runs a transfer when it is its turn. `signal` aborted ends the waiting with its reason, where that is an AppError. */
  async turn<R>(signal: AbortSignal, transfer: () => Promise<R>): Promise<R> {
    if (this.#bytesPerSecond === null) return transfer();
    if (signal.aborted) throw cancelled(signal);
    if (this.#places > 0) this.#places -= 1;
    else await this.#place(signal);
    try {
      return await transfer();
    } finally {
      this.#leave();
    }
  }

  /** The same bytes, no faster than may be. It breaks as the body does, and destroying it destroys the body. */
  limit(body: Readable, signal: AbortSignal): Readable {
    if (this.#bytesPerSecond === null) return body;
    return Readable.from(this.#slices(body, this.#bytesPerSecond, signal), { objectMode: false });
  }

  async *#slices(body: Readable, bytesPerSecond: number, signal: AbortSignal): AsyncGenerator<Buffer> {
    for await (const piece of body) {
      const bytes: Buffer = piece;
      for (let at = 0; at < bytes.length; at += sliceBytes) {
        const slice = bytes.subarray(at, at + sliceBytes);
        await this.#pass((slice.length / bytesPerSecond) * 1_000, signal);
        yield slice;
      }
    }
  }

  /** Waits until what takes `milliseconds` at the rate may pass; who asks first passes first. */
  async #pass(milliseconds: number, signal: AbortSignal): Promise<void> {
    const now = this.#clock.now();
    this.#due = Math.max(this.#due, now) + milliseconds;
    const early = this.#due - now - 1_000;
    // A timer may end a little before its time.
    if (early <= 0) return;
    await this.#clock.sleep(Math.ceil(early) + 1, signal).catch((error: unknown) => {
      throw signal.aborted ? cancelled(signal) : error;
    });
  }

  async #place(signal: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const onAbort = (): void => {
      if (this.#waiting.delete(resolve)) reject(cancelled(signal));
    };
    this.#waiting.add(resolve);
    signal.addEventListener('abort', onAbort, { once: true });
    await promise.finally(() => signal.removeEventListener('abort', onAbort));
  }

  /** Hands the place on to who waited longest. */
  #leave(): void {
    const [next] = this.#waiting;
    if (!next) {
      this.#places += 1;
      return;
    }
    this.#waiting.delete(next);
    next();
  }
}

function cancelled(signal: AbortSignal): AppError {
  const reason: unknown = signal.reason;
  return reason instanceof AppError ? reason : unavailable('The request was cancelled.');
}
