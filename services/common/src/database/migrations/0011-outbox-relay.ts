import { sql } from 'kysely';
import type { Kysely } from 'kysely';

/** What the relay needs: the order of events, which of them are published, and who publishes. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await makeEventIds(db);
  await orderEvents(db);
  await sql`
    create table jobs.outbox_relay (
      only_row boolean primary key default true check (only_row),
      holder uuid,
      fence bigint not null default 0,
      lease_until timestamptz(3) not null default now()
    )`.execute(db);
  await sql`insert into jobs.outbox_relay default values`.execute(db);
  await sql`grant select, update on jobs.outbox_relay to stowage_placement`.execute(db);
}

/** A UUIDv7, made by the statement that makes the event: PostgreSQL has a function for it from version 18 on only. */
async function makeEventIds(db: Kysely<unknown>): Promise<void> {
  await sql`
    create function jobs.new_event_id() returns uuid language sql volatile parallel safe
    return encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
      placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6),
      52, 1), 53, 1), 'hex')::uuid`.execute(db);
  await sql`alter table jobs.outbox alter column id set default jobs.new_event_id()`.execute(db);
}

/** Events of before get their places by the time that their ids tell. */
async function orderEvents(db: Kysely<unknown>): Promise<void> {
  await sql`alter table jobs.outbox add column position bigint, add column published_at timestamptz(3)`.execute(db);
  await sql`
    update jobs.outbox set position = numbered.position
    from (select id, row_number() over (order by id) as position from jobs.outbox) numbered
    where outbox.id = numbered.id`.execute(db);
  await sql`
    alter table jobs.outbox alter column position set not null,
      alter column position add generated always as identity,
      set (autovacuum_vacuum_scale_factor = 0.02)`.execute(db);
  await sql`
    select setval(pg_get_serial_sequence('jobs.outbox', 'position'), coalesce(max(position), 0) + 1, false)
    from jobs.outbox`.execute(db);
  await sql`drop index jobs.outbox_created_at_idx`.execute(db);
  await sql`create index outbox_waiting_idx on jobs.outbox (position) where published_at is null`.execute(db);
  await sql`create index outbox_published_idx on jobs.outbox (created_at) where published_at is not null`.execute(db);
}
