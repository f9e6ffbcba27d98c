import { sql } from 'kysely';
import type { Kysely } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`create schema upload`.execute(db);
  await createUploads(db);
  await createLeases(db);
  await sql`grant usage on schema upload to stowage_upload`.execute(db);
  await sql`grant select, insert, update, delete on all tables in schema upload to stowage_upload`.execute(db);
  await sql`grant usage on sequence upload.fences to stowage_upload`.execute(db);
}

async function createUploads(db: Kysely<unknown>): Promise<void> {
  // backend_id: unset until content was staged, and again once nothing is staged any more.
  // abandoned: expired while finalizing; whether a file came of it has to be asked.
  await sql`
    create table upload.uploads (
      id uuid primary key,
      user_id uuid not null,
      state text not null default 'open' check (state in ('open', 'finalizing', 'finalized', 'abandoned', 'ended')),
      length bigint check (length >= 0),
      metadata text,
      filename text,
      directory_id uuid,
      media_type text,
      file_class text,
      sha256 bytea check (length(sha256) = 32),
      on_conflict text check (on_conflict in ('fail', 'rename')),
      file_id uuid not null,
      blob_id uuid not null,
      backend_id uuid constraint uploads_backend_id_fkey references registry.backends (id),
      sealed_key text,
      sealed_sha256 bytea check (length(sealed_sha256) = 32),
      sealed_chunk_crc32c bytea,
      sealed_head bytea,
      created_at timestamptz(3) not null default now(),
      expires_at timestamptz(3) not null,
      discarded_at timestamptz(3),
      constraint uploads_sealed_check check ((sealed_sha256 is null) = (sealed_key is null)),
      constraint uploads_finalized_check check (state <> 'finalized' or sealed_key is not null),
      constraint uploads_discarded_check check (discarded_at is null or (state = 'ended' and backend_id is null)),
      constraint uploads_backend_check check (state not in ('finalizing', 'abandoned') or backend_id is not null)
    )`.execute(db);
  await sql`create index uploads_backend_id_idx on upload.uploads (backend_id)`.execute(db);
  await sql`create index uploads_expires_at_idx on upload.uploads (state, expires_at)`.execute(db);
  await sql`
    create index uploads_open_idx on upload.uploads (user_id) where state in ('open', 'finalizing')`.execute(db);
  await sql`
    create index uploads_to_free_idx on upload.uploads (id)
    where state = 'abandoned' or (state = 'ended' and discarded_at is null)`.execute(db);
}

async function createLeases(db: Kysely<unknown>): Promise<void> {
  // A lease of a dead process runs out by itself, so what a crash may lose here is of no worth.
  await sql`
    create unlogged table upload.leases (
      upload_id uuid primary key,
      fence bigint not null,
      expires_at timestamptz(3) not null
    )`.execute(db);
  await sql`create index leases_expires_at_idx on upload.leases (expires_at)`.execute(db);
  await sql`create sequence upload.fences`.execute(db);
}
