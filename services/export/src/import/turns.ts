import { unavailable } from '@stowage/common/errors';
import { withinWait } from '@stowage/common/within-wait';

const retryAfterSeconds = 30;

/** Lets one work at a time in this process. */
export class Turns {
  readonly #waitMs: number;
  #last: Promise<true> = Promise.resolve(true);

  /** `waitMs`: how long one waits for those before it. */
  constructor(waitMs: number) {
    this.#waitMs = waitMs;
  }

  /** Runs `work` when its turn has come. Throws `unavailable` where that takes too long. */
  async run<R>(work: () => Promise<R>): Promise<R> {
    const before = this.#last;
    const { promise, resolve } = Promise.withResolvers<true>();
    this.#last = before.then(() => promise);
    try {
      if ((await withinWait(before, this.#waitMs)) === null) {
        throw unavailable('Another import is under way: try again.', undefined, retryAfterSeconds);
      }
      return await work();
    } finally {
      resolve(true);
    }
  }
}
