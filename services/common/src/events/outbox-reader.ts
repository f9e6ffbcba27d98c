import { sql } from 'kysely';
import type { Kysely } from 'kysely';
import { query } from '../database/transaction.ts';
import { toCloudEvent } from './cloud-event.ts';
import type { CloudEvent, OutboxRow } from './cloud-event.ts';

/**
 * Reads the first events that are not published, in order, for whoever holds the relay's lease under this fence; nothing
 * for others. No mark of "read up to here" is kept: a transaction that commits late has an earlier position. Within
 * one resource that can't be: its next event is written after the one before was committed, as the row was locked.
 */
export async function readWaiting<T>(db: Kysely<T>, fence: string, limit: number): Promise<CloudEvent[]> {
  const { rows } = await query(() =>
    sql<OutboxRow>`
      select waiting.id, subject, data, traceparent, created_at
      from jobs.outbox_relay relay cross join lateral (
        select id, subject, data, traceparent, created_at, position from jobs.outbox
        where published_at is null order by position limit ${limit}) waiting
      where relay.fence = ${fence} and relay.lease_until > now()
      order by position`.execute(db),
  );
  return rows.map(toCloudEvent);
}

/**
 * Notes that these are kept by the bus. True whoever says it, so it needs no fence. They are found by id alone: while few
 * are thought to wait, PostgreSQL would read all that wait instead.
 */
export async function markPublished<T>(db: Kysely<T>, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  await query(() => sql`update jobs.outbox set published_at = now() where id = any(${ids}::uuid[])`.execute(db));
}
