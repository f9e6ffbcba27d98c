import { sql } from 'kysely';
import type { Kysely } from 'kysely';

/** What it takes to compare backends with the metadata: replicas in the order of their keys, and memory of unknown objects. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await orderReplicas(db);
  await showUnfinishedBlobs(db);
  await rememberUnknownObjects(db);
  await holdRemovals(db);
}

async function orderReplicas(db: Kysely<unknown>): Promise<void> {
  // A key is blobs/<last byte of the id>/<id>: as stores list, so that both sides are read in one order.
  await sql`
    create index replicas_by_key_idx on catalog.replicas (backend_id, (get_byte(uuid_send(blob_id), 15)), blob_id)`.execute(
    db,
  );
  // Whatever asks by backend alone is served by the beginning of the new one.
  await sql`drop index catalog.replicas_backend_id_idx`.execute(db);
}

/** Content that catalog may yet be told of. Each half is an index of few rows. */
async function showUnfinishedBlobs(db: Kysely<unknown>): Promise<void> {
  await sql`
    create view upload.unfinished_blobs as
    select blob_id from upload.uploads where state in ('open', 'finalizing')
    union all
    select blob_id from upload.uploads where state = 'abandoned'`.execute(db);
  await sql`grant usage on schema upload to stowage_catalog`.execute(db);
  await sql`grant select on upload.unfinished_blobs to stowage_catalog`.execute(db);
}

async function rememberUnknownObjects(db: Kysely<unknown>): Promise<void> {
  // seen_before: a listing before last_run that was read whole and showed it too.
  await sql`
    create table placement.unknown_objects (
      backend_id uuid not null references registry.backends (id) on delete cascade,
      key text collate "C" not null,
      size bigint not null,
      modified_at timestamptz(3) not null,
      first_seen timestamptz(3) not null default now(),
      first_run uuid not null,
      last_run uuid not null,
      seen_before uuid,
      runs integer not null default 1,
      primary key (backend_id, key)
    )`.execute(db);
  // The last run in which all that a backend lists was compared.
  await sql`
    create table placement.compared_backends (
      backend_id uuid primary key references registry.backends (id) on delete cascade,
      run uuid not null,
      compared_at timestamptz(3) not null default now()
    )`.execute(db);
  await sql`
    grant select, insert, update, delete on placement.unknown_objects, placement.compared_backends
    to stowage_placement`.execute(db);
}

/** One row, or none: until when nothing is removed from backends. */
async function holdRemovals(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table placement.removal_hold (
      slot boolean primary key default true check (slot),
      removals_held_until timestamptz(3)
    )`.execute(db);
  await sql`grant usage on schema placement to stowage_export`.execute(db);
  await sql`
    grant select, insert, update on placement.removal_hold to stowage_placement, stowage_export`.execute(db);
}
