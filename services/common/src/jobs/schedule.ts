import type { Kysely } from 'kysely';
import { inTransaction } from '../database/transaction.ts';
import type { Logger } from '../runtime/logger.ts';
import { enqueueJob } from './enqueue.ts';
import type { JobKind } from './job.ts';

/** Sees to it that a job of `kind` is pending for the next multiple of `everyMs`, once across all replicas. */
export class Schedule<T> {
  readonly #db: Kysely<T>;
  readonly #kind: JobKind;
  readonly #everyMs: number;
  readonly #logger: Logger;
  #timer: NodeJS.Timeout | undefined;

  constructor(db: Kysely<T>, kind: JobKind, everyMs: number, logger: Logger) {
    this.#db = db;
    this.#kind = kind;
    this.#everyMs = everyMs;
    this.#logger = logger;
  }

  start(): void {
    void this.#tick();
    this.#timer = setInterval(() => void this.#tick(), this.#everyMs);
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  async #tick(): Promise<void> {
    const next = new Date(Math.ceil(Date.now() / this.#everyMs) * this.#everyMs);
    try {
      await inTransaction(this.#db, (trx) =>
        enqueueJob(trx, { kind: this.#kind, runAfter: next, dedupeKey: 'schedule' }),
      );
    } catch (error) {
      this.#logger.warn({ err: error, kind: this.#kind }, 'A housekeeping job could not be queued.');
    }
  }
}
