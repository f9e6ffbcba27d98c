import type { Logger } from '../runtime/logger.ts';

const everyMs = 60_000;

/** Tells that events are not published, once and then every minute, and when they are again. */
export class RelayReport {
  readonly #logger: Logger;
  #toldAt: number | null = null;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  fails(error: unknown): void {
    const now = performance.now();
    if (this.#toldAt !== null && now - this.#toldAt < everyMs) return;
    this.#toldAt = now;
    this.#logger.warn({ err: error }, 'Events are not published just now; they wait in the outbox.');
  }

  works(): void {
    if (this.#toldAt === null) return;
    this.#toldAt = null;
    this.#logger.info('Events are published again.');
  }
}
