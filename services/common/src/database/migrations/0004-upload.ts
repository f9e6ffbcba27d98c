import { sql } from 'kysely';
import type { Kysely } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`create schema upload`.execute(db);
  await sql`
    create table upload.uploads (
      id uuid primary key,
      user_id uuid not null,
      state text not null default 'open' check (state in ('open', 'finalizing', 'finalized', 'ended')),
      length bigint check (length >= 0),
      metadata text,
      filename text,
      directory_id uuid,
      media_type text,
      file_class text,
      sha256 bytea check (length(sha256) = 32),
      on_conflict text not null default 'fail' check (on_conflict in ('fail', 'rename')),
      file_id uuid not null,
      blob_id uuid not null,
      backend_id uuid not null,
      sealed_key text,
      sealed_sha256 bytea,
      sealed_chunk_crc32c bytea,
      sealed_head bytea,
      created_at timestamptz(3) not null default now(),
      expires_at timestamptz(3) not null,
      check ((sealed_sha256 is null) = (sealed_key is null)),
      check (state <> 'finalized' or sealed_key is not null)
    )`.execute(db);
  await sql`alter table upload.uploads add constraint uploads_backend_id_fkey
    foreign key (backend_id) references registry.backends (id)`.execute(db);
  await sql`create index uploads_backend_id_idx on upload.uploads (backend_id)`.execute(db);
  await sql`create index uploads_expires_at_idx on upload.uploads (expires_at)`.execute(db);
  await sql`
    create index uploads_open_idx on upload.uploads (user_id) where state in ('open', 'finalizing')`.execute(db);
  // A lease of a dead process runs out by itself, so what a crash may lose here is of no worth.
  await sql`
    create unlogged table upload.leases (
      upload_id uuid primary key,
      holder uuid not null,
      fence bigint not null,
      expires_at timestamptz(3) not null
    )`.execute(db);
  await sql`create sequence upload.fences`.execute(db);
  await sql`grant usage on schema upload to stowage_upload`.execute(db);
  await sql`grant select, insert, update, delete on all tables in schema upload to stowage_upload`.execute(db);
  await sql`grant usage on sequence upload.fences to stowage_upload`.execute(db);
}
