import { sql } from 'kysely';
import type { QueryExecutorProvider } from 'kysely';

/**
 * Holds all removals from backends for so long, in the caller's transaction: after an import replicas are believed only
 * once they were read, and what the metadata does not name may be what an undone import needs. A longer hold stays.
 */
export async function holdRemovals(trx: QueryExecutorProvider, forMs: number): Promise<void> {
  await sql`
    insert into placement.removal_hold as hold (slot, removals_held_until)
    values (true, now() + ${forMs} * interval '1 ms')
    on conflict (slot) do update
      set removals_held_until = greatest(hold.removals_held_until, excluded.removals_held_until)`.execute(trx);
}

/** For how long, in ms, removals are still held; 0 where they are not. */
export async function removalsHeldForMs(db: QueryExecutorProvider): Promise<number> {
  const { rows } = await sql<{ left: string }>`
    select ceil(extract(epoch from removals_held_until - now()) * 1000)::bigint as left
    from placement.removal_hold where removals_held_until > now()`.execute(db);
  return Number(rows[0]?.left ?? 0);
}
