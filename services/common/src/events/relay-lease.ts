import { sql } from 'kysely';
import type { Kysely } from 'kysely';
import { query } from '../database/transaction.ts';
import { newId } from '../ids.ts';

/**
 * The right to publish, which one relay of all processes has at a time. A lease rather than a lock: it also ends for a
 * holder that is frozen or cut off. Its fence rises with every holder.
 */
export class RelayLease<T> {
  readonly #db: Kysely<T>;
  readonly #leaseMs: number;
  readonly #holder = newId();
  #fence: string | null = null;
  /** By the clock of this process, counted from before PostgreSQL was asked: never later than in the table. */
  #heldUntil = 0;

  constructor(db: Kysely<T>, leaseMs: number) {
    this.#db = db;
    this.#leaseMs = leaseMs;
  }

  /** Whether an event may be sent now. */
  get isHeld(): boolean {
    return performance.now() < this.#heldUntil;
  }

  /** Takes the lease where it is free, and renews it once a third is over. Gives its fence, or null: another has it. */
  async hold(): Promise<string | null> {
    const asked = performance.now();
    if (this.#fence !== null && asked < this.#heldUntil - (this.#leaseMs * 2) / 3) return this.#fence;
    const { rows } = await query(() =>
      sql<{ fence: string }>`
        update jobs.outbox_relay set holder = ${this.#holder}, lease_until = now() + ${this.#leaseMs} * interval '1 ms',
          fence = fence + case when holder = ${this.#holder} then 0 else 1 end
        where holder = ${this.#holder} or lease_until <= now() returning fence`.execute(this.#db),
    );
    this.#fence = rows[0]?.fence ?? null;
    this.#heldUntil = this.#fence === null ? 0 : asked + this.#leaseMs;
    return this.#fence;
  }

  /** Gives the lease back for others to take at once. Where that fails it runs out. */
  async release(): Promise<void> {
    this.#fence = null;
    this.#heldUntil = 0;
    await query(() =>
      sql`update jobs.outbox_relay set holder = null, lease_until = now() where holder = ${this.#holder}`.execute(
        this.#db,
      ),
    ).catch(() => undefined);
  }
}
