import { sql } from 'kysely';
import type { Kysely } from 'kysely';

/** What planning goes by: how long a backend has been as it is, which replicas are in danger, and how far a reconcile came. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await noteHealthChanges(db);
  await sql`alter table catalog.replicas add column removing_since timestamptz(3)`.execute(db);
  // Few at any time: they are repaired before all others.
  await sql`
    create index replicas_damaged_idx on catalog.replicas (blob_id) where state in ('corrupt', 'missing')`.execute(db);
  // One row: full reconciles run one at a time, and go on where the last one was interrupted.
  await sql`
    create table placement.reconcile_run (
      slot boolean primary key default true check (slot),
      job_id uuid not null,
      fence bigint not null,
      position jsonb not null,
      covers uuid[] not null,
      clean boolean not null default false,
      started_at timestamptz(3) not null
    )`.execute(db);
  await sql`grant select, insert, update, delete on placement.reconcile_run to stowage_placement`.execute(db);
}

async function noteHealthChanges(db: Kysely<unknown>): Promise<void> {
  await sql`alter table registry.backends add column health_since timestamptz(3) not null default now()`.execute(db);
  // Here rather than in whatever writes a health: none of them can forget it.
  await sql`
    create function registry.note_health_change() returns trigger language plpgsql as $$
    begin
      new.health_since := now();
      return new;
    end $$`.execute(db);
  await sql`
    create trigger backends_health_since before update of health_status on registry.backends for each row
    when (old.health_status is distinct from new.health_status) execute function registry.note_health_change()`.execute(
    db,
  );
  await sql`
    create view registry.backend_standing as
    select id, name, enabled, health_status, health_since from registry.backends`.execute(db);
  await sql`grant select on registry.backend_standing to stowage_placement`.execute(db);
}
