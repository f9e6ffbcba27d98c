import { unavailable } from '@stowage/common/errors';

/** Lets a few callers in at a time; the rest wait in order, up to a limit. */
export class Semaphore {
  #free: number;
  readonly #queueLimit: number;
  readonly #waiting: (() => void)[] = [];

  constructor(slots: number, queueLimit = 1_000) {
    this.#free = slots;
    this.#queueLimit = queueLimit;
  }

  /** Throws `unavailable` when too many wait already. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free -= 1;
    else await this.#wait();
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      if (next) next();
      else this.#free += 1;
    }
  }

  #wait(): Promise<void> {
    if (this.#waiting.length >= this.#queueLimit) throw unavailable('Too many requests of this kind wait already.');
    return new Promise((resolve) => this.#waiting.push(resolve));
  }
}
