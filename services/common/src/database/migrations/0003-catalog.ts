import { sql } from 'kysely';
import type { Kysely } from 'kysely';
import { rootDirectoryId } from '../../ids.ts';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`create schema catalog`.execute(db);
  await createBlobs(db);
  await createNodes(db);
  await createNodeIndexes(db);
  await sql`grant usage on schema catalog to stowage_catalog`.execute(db);
  await sql`grant select, insert, update, delete on all tables in schema catalog to stowage_catalog`.execute(db);
}

async function createBlobs(db: Kysely<unknown>): Promise<void> {
  // sha256 is null only for a blob that was abandoned before it became a file.
  await sql`
    create table catalog.blobs (
      id uuid primary key,
      size bigint not null check (size >= 0),
      sha256 bytea check (length(sha256) = 32),
      chunk_crc32c bytea not null,
      created_at timestamptz(3) not null default now(),
      delete_after timestamptz(3),
      check (sha256 is not null or delete_after is not null)
    )`.execute(db);
  // Kept out of line and uncompressed, so that a range of a 4 MiB list is read without the rest.
  await sql`alter table catalog.blobs alter column chunk_crc32c set storage external`.execute(db);
  await sql`
    create table catalog.replicas (
      blob_id uuid not null references catalog.blobs (id),
      backend_id uuid not null constraint replicas_backend_id_fkey references registry.backends (id),
      key text not null,
      state text not null
        check (state in ('available', 'unverified', 'copying', 'corrupt', 'missing', 'removing')),
      verified_at timestamptz(3),
      created_at timestamptz(3) not null default now(),
      primary key (blob_id, backend_id)
    )`.execute(db);
  await sql`create index replicas_backend_id_idx on catalog.replicas (backend_id)`.execute(db);
}

async function createNodes(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table catalog.nodes (
      id uuid primary key,
      parent_id uuid constraint nodes_parent_id_fkey references catalog.nodes (id),
      kind text collate "C" not null check (kind in ('directory', 'file')),
      name text collate "C" not null,
      version bigint not null default 1,
      created_at timestamptz(3) not null default now(),
      updated_at timestamptz(3) not null default now(),
      deleted_at timestamptz(3),
      purge_at timestamptz(3),
      purged_at timestamptz(3),
      blob_id uuid constraint nodes_blob_id_fkey references catalog.blobs (id),
      size bigint,
      media_type text,
      file_class text,
      constraint nodes_parent_check check (
        parent_id is not null or deleted_at is not null or purged_at is not null or id = ${sql.lit(rootDirectoryId)}),
      constraint nodes_file_check check (
        (kind = 'file') = (blob_id is not null and size is not null and media_type is not null and file_class is not null)),
      constraint nodes_bin_check check ((deleted_at is null) = (purge_at is null)),
      constraint nodes_purged_check check (purged_at is null or id <> ${sql.lit(rootDirectoryId)})
    )`.execute(db);
  await sql`insert into catalog.nodes (id, kind, name) values (${sql.lit(rootDirectoryId)}, 'directory', '')`.execute(
    db,
  );
}

async function createNodeIndexes(db: Kysely<unknown>): Promise<void> {
  const live = sql`where deleted_at is null`;
  await sql`create unique index nodes_name_key on catalog.nodes (parent_id, name) ${live}`.execute(db);
  await sql`create index nodes_by_name_idx on catalog.nodes (parent_id, kind, name) ${live}`.execute(db);
  await sql`create index nodes_by_created_idx on catalog.nodes (parent_id, kind, created_at, id) ${live}`.execute(db);
  await sql`create index nodes_by_updated_idx on catalog.nodes (parent_id, kind, updated_at, id) ${live}`.execute(db);
  await sql`create index nodes_by_size_idx on catalog.nodes (parent_id, size, id) where deleted_at is null and kind = 'file'`.execute(
    db,
  );
  // Serves the foreign key, whose check knows no `where`, when a node is deleted, and the purge of a directory. With the
  // id it is no smaller than the indexes above, so that the planner is not tempted to sort a directory read through it.
  await sql`create index nodes_parent_id_idx on catalog.nodes (parent_id, id)`.execute(db);
  await sql`
    create index nodes_bin_idx on catalog.nodes (deleted_at desc, id desc)
    where deleted_at is not null and purged_at is null`.execute(db);
  await sql`
    create index nodes_purge_at_idx on catalog.nodes (purge_at)
    where purge_at is not null and purged_at is null`.execute(db);
  await sql`create index nodes_purged_idx on catalog.nodes (kind, purged_at, id) where purged_at is not null`.execute(
    db,
  );
  await sql`create index nodes_blob_id_idx on catalog.nodes (blob_id) where blob_id is not null`.execute(db);
}
