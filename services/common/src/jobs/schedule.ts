import type { Kysely } from 'kysely';
import { inTransaction } from '../database/transaction.ts';
import type { Logger } from '../runtime/logger.ts';
import { enqueueJob } from './enqueue.ts';
import type { NewJob } from './enqueue.ts';
import type { JobKind } from './job.ts';

/** Tells what is to be done each time, as jobs with a dedupe key. */
type Plan<T> = (db: Kysely<T>) => Promise<(NewJob & { dedupeKey: string })[]>;

/** Sees to it that jobs are pending for the next multiple of `everyMs`, once across all replicas: one of a kind, or what a plan tells. */
export class Schedule<T> {
  readonly #db: Kysely<T>;
  readonly #plan: Plan<T>;
  readonly #everyMs: number;
  readonly #logger: Logger;
  #timer: NodeJS.Timeout | undefined;

  constructor(db: Kysely<T>, what: JobKind | Plan<T>, everyMs: number, logger: Logger) {
    this.#db = db;
    this.#plan = typeof what === 'string' ? async () => [{ kind: what, dedupeKey: 'schedule' }] : what;
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
    const runAfter = new Date(Math.ceil(Date.now() / this.#everyMs) * this.#everyMs);
    try {
      for (const job of await this.#plan(this.#db)) {
        await inTransaction(this.#db, (trx) => enqueueJob(trx, { ...job, runAfter }));
      }
    } catch (error) {
      this.#logger.warn({ err: error }, 'Housekeeping jobs could not be queued.');
    }
  }
}
