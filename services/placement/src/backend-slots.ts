import { AppError } from '@stowage/common/errors';

export interface SlotOptions {
  /** So much work at once for each backend. */
  most: number;
  /** How long work may wait for its turn, in milliseconds; none waits for a backend that is slow. */
  waitMs: number;
  /** Work is slow that takes longer than this and a second for each MiB, in milliseconds. */
  slowMs: number;
  /** So much slow work makes its backend slow: it gets no more. */
  slowMost: number;
  /** For how long then, in milliseconds. */
  restMs: number;
}

/** Work on content. */
export interface Work {
  /** The backend that is written to, or read for its own sake. */
  backendId: string;
  /** Where it is copied from; null for no copy. */
  from: string | null;
  /** In bytes. */
  size: number;
}

/** A backend has as much to do as it may; `delayMs` is when to come again. */
export class BackendBusy extends AppError {
  readonly delayMs: number;

  constructor(delayMs: number) {
    super('unavailable', 'The backend is slow, or has enough to do: this is left for later.');
    this.delayMs = delayMs;
  }
}

interface Running extends Work {
  startedAt: number;
}

interface Waiting {
  work: Work;
  start(): void;
}

const bytesPerMs = 1_048;
const delay = { leastMs: 1_000, eachMs: 100, mostMs: 5 * 60_000 };

/**
 * Bounds the work that one backend can hold up: what is slow, or hangs, takes its own places and leaves those of others. Of
 * the places of a backend one is kept from each source, which may be the slow end.
 */
export class BackendSlots {
  readonly #options: SlotOptions;
  readonly #now: () => number;
  readonly #running = new Set<Running>();
  readonly #waiting = new Set<Waiting>();
  readonly #restsUntil = new Map<string, number>();
  readonly #sentAway = new Map<string, number>();

  constructor(options: SlotOptions, now: () => number = () => performance.now()) {
    this.#options = options;
    this.#now = now;
  }

  /** Runs `work` in a place of its backend. Throws BackendBusy where there is none in time. */
  async run<R>(work: Work, run: () => Promise<R>): Promise<R> {
    if (this.#isSlow(work.backendId)) throw this.#busy(work.backendId);
    while (!this.#hasPlace(work)) await this.#turn(work);
    const running = { ...work, startedAt: this.#now() };
    this.#running.add(running);
    try {
      return await run();
    } finally {
      this.#end(running);
    }
  }

  #hasPlace({ backendId, from }: Work): boolean {
    const { most } = this.#options;
    const here = [...this.#running].filter((running) => running.backendId === backendId);
    const alike = here.filter((running) => running.from !== null && running.from === from);
    return here.length < most && alike.length < Math.max(1, most - 1);
  }

  #isSlow(backendId: string): boolean {
    const now = this.#now();
    const { slowMs, slowMost, restMs } = this.#options;
    const slow = [...this.#running].filter(
      (running) => running.backendId === backendId && now - running.startedAt > slowMs + running.size / bytesPerMs,
    );
    if (slow.length >= slowMost) this.#restsUntil.set(backendId, now + restMs);
    return slow.length >= slowMost || (this.#restsUntil.get(backendId) ?? 0) > now;
  }

  #busy(backendId: string): BackendBusy {
    const before = this.#sentAway.get(backendId) ?? 0;
    this.#sentAway.set(backendId, before + 1);
    return new BackendBusy(Math.min(delay.mostMs, delay.leastMs + delay.eachMs * before));
  }

  async #turn(work: Work): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiting: Waiting = { work, start: resolve };
    this.#waiting.add(waiting);
    const timer = setTimeout(() => reject(this.#busy(work.backendId)), this.#options.waitMs);
    try {
      await promise;
    } finally {
      clearTimeout(timer);
      this.#waiting.delete(waiting);
    }
  }

  #end(running: Running): void {
    this.#running.delete(running);
    if (!this.#isSlow(running.backendId)) this.#sentAway.delete(running.backendId);
    const next = [...this.#waiting].find(({ work }) => this.#hasPlace(work));
    if (!next) return;
    this.#waiting.delete(next);
    next.start();
  }
}
