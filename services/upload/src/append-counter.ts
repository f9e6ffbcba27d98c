import { setTimeout as sleep } from 'node:timers/promises';
import { AppError } from '@stowage/common/errors';

/** Counts the bodies that each user is sending to this process. */
export class AppendCounter {
  readonly #limit: number;
  readonly #running = new Map<string, number>();
  readonly #appends = new Set<Promise<unknown>>();

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Runs `append` as one more of the user's. Throws `rate_limited` where the user has as many as are allowed. */
  async run<R>(userId: string, append: () => Promise<R>): Promise<R> {
    const before = this.#running.get(userId) ?? 0;
    if (before >= this.#limit) {
      throw new AppError('rate_limited', `You are sending ${before} bodies at once already: wait for one to end.`, {
        members: { retry_after: 1 },
      });
    }
    this.#running.set(userId, before + 1);
    const running = append();
    this.#appends.add(running);
    try {
      return await running;
    } finally {
      this.#appends.delete(running);
      const left = (this.#running.get(userId) ?? 1) - 1;
      if (left > 0) this.#running.set(userId, left);
      else this.#running.delete(userId);
    }
  }

  /** Resolves when none that runs now is left, or after `limitMs`. */
  async settled(limitMs: number): Promise<void> {
    const limit = new AbortController();
    const late = sleep(limitMs, undefined, { signal: limit.signal }).catch(() => undefined);
    await Promise.race([Promise.allSettled(this.#appends), late]);
    limit.abort();
  }
}
