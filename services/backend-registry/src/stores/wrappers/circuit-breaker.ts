import { Readable, finished } from 'node:stream';
import { AppError, unavailable } from '@stowage/common/errors';
import type { StoreCall, Wrapper } from './wrapped-store.ts';

export interface BreakerOptions {
  /** So many failures in a row, with no success between them, open it. */
  failures: number;
  /** For how long it stays open before one call may try, in milliseconds. */
  openMs: number;
  /** A caller that gave up waiting for an answer after this counts as a failure, in milliseconds. */
  patienceMs: number;
}

class OpenCircuit extends Error {
  override readonly name = 'OpenCircuit';
}

/** Whether a call was not made at all, because those before it failed. */
export function isOpenCircuit(error: unknown): boolean {
  return error instanceof AppError && error.cause instanceof OpenCircuit;
}

/**
 * Spares callers the waiting for a backend that is down: after some failures in a row calls are `unavailable` at once, until
 * one that is let through succeeds. The look at the marker is always let through, so that a check sees what is, and its
 * success closes the circuit. Broken streams count, what the caller did wrong or cancelled
 * does not, unless it had waited for an answer for long.
 */
export class CircuitBreaker implements Wrapper {
  readonly #options: BreakerOptions;
  readonly #now: () => number;
  #failures = 0;
  /** Of the clock that nobody sets; 0 while it is closed. */
  #openUntil = 0;

  constructor(options: BreakerOptions, now: () => number = () => performance.now()) {
    this.#options = options;
    this.#now = now;
  }

  async around<R>(call: StoreCall<R>): Promise<R> {
    if (call.name !== 'identity') this.#requirePassage();
    const askedAt = this.#now();
    try {
      const result = await call.run();
      if (result instanceof Readable) this.#watch(result, call);
      else this.#succeeded();
      return result;
    } catch (error) {
      // What has a body may have waited for its sender.
      const gaveUp = call.repeatable && call.callersFault() && this.#now() - askedAt >= this.#options.patienceMs;
      if (gaveUp) this.#failed();
      else this.#note(error, call);
      throw error;
    }
  }

  /** While it is open one call in each period goes through. */
  #requirePassage(): void {
    if (this.#openUntil === 0) return;
    const wait = this.#openUntil - this.#now();
    if (wait <= 0) {
      this.#openUntil = this.#now() + this.#options.openMs;
      return;
    }
    const detail = 'The backend failed again and again: it is left alone for a while.';
    throw unavailable(detail, new OpenCircuit('not asked'), Math.ceil(wait / 1000));
  }

  #watch<R>(stream: Readable, call: StoreCall<R>): void {
    finished(stream, { writable: false }, (error) => {
      if (error) this.#note(error, call);
      else this.#succeeded();
    });
  }

  #note<R>(error: unknown, call: StoreCall<R>): void {
    if (call.callersFault()) return;
    if (!(error instanceof AppError)) return;
    if (error.code !== 'unavailable') {
      // It answered.
      this.#succeeded();
      return;
    }
    this.#failed();
  }

  #failed(): void {
    this.#failures += 1;
    if (this.#failures >= this.#options.failures) this.#openUntil = this.#now() + this.#options.openMs;
  }

  #succeeded(): void {
    this.#failures = 0;
    this.#openUntil = 0;
  }
}
