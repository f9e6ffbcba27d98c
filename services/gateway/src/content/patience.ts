import type { Readable } from 'node:stream';
import { unavailable } from '@stowage/common/errors';

/** Limits how long a reader is kept waiting each time; null is as long as it takes. */
export class Patience {
  /** Aborted when it is over, or when the signal it follows is aborted. */
  readonly signal: AbortSignal;
  readonly #limitMs: number | null;
  readonly #over = new AbortController();
  #timer: NodeJS.Timeout | undefined;

  constructor(limitMs: number | null, follows: AbortSignal) {
    this.#limitMs = limitMs;
    this.signal = limitMs === null ? follows : AbortSignal.any([this.#over.signal, follows]);
  }

  get isOver(): boolean {
    return this.#over.signal.aborted;
  }

  /** A wait begins. */
  begin(): void {
    if (this.#limitMs === null) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#over.abort(tooSlow()), this.#limitMs);
  }

  /** A wait has ended. */
  end(): void {
    clearTimeout(this.#timer);
  }

  /** What `opening` gives, while there is patience; the stream is closed when that is over, be it that it comes later. */
  async of(opening: Promise<Readable>): Promise<Readable> {
    if (this.#limitMs === null) return opening;
    const { signal } = this.#over;
    const { promise, reject } = Promise.withResolvers<never>();
    const onOver = (): void => {
      reject(signal.reason);
      opening.then(
        (stream) => stream.on('error', () => undefined).destroy(tooSlow()),
        () => undefined,
      );
    };
    signal.addEventListener('abort', onOver, { once: true });
    promise.catch(() => undefined);
    return Promise.race([opening, promise]);
  }
}

function tooSlow(): Error {
  return unavailable('The replica takes too long.');
}
