import type pg from 'pg';
import type { Logger } from '@stowage/common/runtime/logger';
import { inSpan } from '@stowage/common/runtime/spans';
import { forgetBeforeImport } from './kept/keep-before-import.ts';
import { dropLeftovers } from './plan/drop-leftovers.ts';

const everyMs = 10 * 60_000;

/** Drops what is left of documents and plans: at the start, as a crash may be why there is one, and again and again. */
export class Housekeeping {
  readonly #bulk: pg.Pool;
  readonly #logger: Logger;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> = Promise.resolve();

  constructor(bulk: pg.Pool, logger: Logger) {
    this.#bulk = bulk;
    this.#logger = logger;
  }

  start(): void {
    this.#tick();
    this.#timer = setInterval(() => this.#tick(), everyMs);
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#running;
  }

  async #clean(): Promise<void> {
    await dropLeftovers(this.#bulk);
    await forgetBeforeImport(this.#bulk);
  }

  #tick(): void {
    this.#running = this.#running
      .then(() => inSpan('housekeeping', { root: true }, () => this.#clean()))
      .catch((error: unknown) => this.#logger.warn({ err: error }, 'What is left of documents could not be dropped.'));
  }
}
