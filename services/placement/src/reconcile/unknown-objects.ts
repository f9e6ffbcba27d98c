import { sql } from 'kysely';
import type { Kysely, RawBuilder } from 'kysely';
import { query } from '@stowage/common/database/transaction';
import type { Tables } from '../tables.ts';

/** An object that a backend lists and no metadata knows. */
export interface UnknownObject {
  key: string;
  /** In bytes. */
  size: number;
  modifiedAt: Date;
}

/** One listing of one backend. */
export interface Sighting {
  backendId: string;
  /** The full reconcile that lists it. */
  run: string;
  /** The last full reconcile before that compared all of it; null for none. */
  before: string | null;
}

const batch = 5_000;

/** What backends hold that nobody knows, and in which runs that was seen. */
export class UnknownObjects {
  readonly #db: Kysely<Tables>;
  readonly #graceMs: number;

  /** `graceMs`: for how long an object must have been there, and known to be unknown, before it may go. */
  constructor(db: Kysely<Tables>, graceMs: number) {
    this.#db = db;
    this.#graceMs = graceMs;
  }

  /** The last run that compared all of a backend; null for none. */
  async lastRun(backendId: string): Promise<string | null> {
    const { rows } = await query(() =>
      sql<{ run: string }>`
        select run from placement.compared_backends where backend_id = ${backendId}`.execute(this.#db),
    );
    return rows[0]?.run ?? null;
  }

  /** Notes what a page of a listing showed. */
  async note({ backendId, run, before }: Sighting, objects: readonly UnknownObject[]): Promise<void> {
    if (objects.length === 0) return;
    const keys = objects.map(({ key }) => key);
    const sizes = objects.map(({ size }) => size);
    const times = objects.map(({ modifiedAt }) => modifiedAt);
    // Seen before: by the last run that compared all. One that broke off proves nothing.
    await query(() =>
      sql`
        insert into placement.unknown_objects as known (backend_id, key, size, modified_at, first_run, last_run)
        select ${backendId}::uuid, key, size, modified_at, ${run}::uuid, ${run}::uuid
        from unnest(${keys}::text[], ${sizes}::bigint[], ${times}::timestamptz[]) as seen (key, size, modified_at)
        on conflict (backend_id, key) do update set size = excluded.size, modified_at = excluded.modified_at,
          last_run = excluded.last_run,
          runs = known.runs + (known.last_run <> excluded.last_run)::integer,
          seen_before = case when known.last_run = ${before}::uuid and known.last_run <> excluded.last_run
            then known.last_run else known.seen_before end`.execute(this.#db),
    );
  }

  /** A backend was compared as a whole: what was not seen any more is forgotten. */
  async complete({ backendId, run }: Sighting, signal: AbortSignal): Promise<void> {
    for (let forgotten = batch; forgotten === batch;) {
      signal.throwIfAborted();
      const { numAffectedRows } = await query(() =>
        sql`
          delete from placement.unknown_objects where backend_id = ${backendId} and key in (
            select key from placement.unknown_objects
            where backend_id = ${backendId} and last_run <> ${run} order by key limit ${batch})`.execute(this.#db),
      );
      forgotten = Number(numAffectedRows ?? 0n);
    }
    await query(() =>
      sql`
        insert into placement.compared_backends (backend_id, run) values (${backendId}, ${run})
        on conflict (backend_id) do update set run = excluded.run, compared_at = now()`.execute(this.#db),
    );
  }

  /** How many may go, were nothing in the way: old enough, and unknown in an earlier run too that compared all. */
  async countRemovable(backendId: string, run: string): Promise<number> {
    const { rows } = await query(() =>
      sql<{ count: string }>`
        select count(*) as count from placement.unknown_objects
        where backend_id = ${backendId} and ${this.#isRemovable(run)}`.execute(this.#db),
    );
    return Number(rows[0]?.count ?? 0);
  }

  /** Those after a key that may go, in order. */
  async removable(backendId: string, run: string, after: string, limit: number): Promise<UnknownObject[]> {
    const { rows } = await query(() =>
      sql<{ key: string; size: string; modified_at: Date }>`
        select key, size, modified_at from placement.unknown_objects
        where backend_id = ${backendId} and key > ${after} and ${this.#isRemovable(run)}
        order by key limit ${limit}`.execute(this.#db),
    );
    return rows.map((row) => ({ key: row.key, size: Number(row.size), modifiedAt: row.modified_at }));
  }

  async forget(backendId: string, keys: readonly string[]): Promise<void> {
    await query(() =>
      sql`
        delete from placement.unknown_objects where backend_id = ${backendId} and key = any(${keys})`.execute(this.#db),
    );
  }

  /** By the later of two clocks: the store's may be slow, ours was not there when the object was made. */
  #isRemovable(run: string): RawBuilder<boolean> {
    return sql<boolean>`last_run = ${run} and seen_before is not null and seen_before <> last_run
      and greatest(first_seen, modified_at) <= now() - ${this.#graceMs} * interval '1 ms'`;
  }
}
