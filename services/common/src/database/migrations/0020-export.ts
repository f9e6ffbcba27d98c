import { sql } from 'kysely';
import type { Kysely } from 'kysely';

/** Metadata out and in: the identity of this installation, kept exports, plans, and what the export reads of all schemas. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`create schema export`.execute(db);
  await sql`
    create table export.instance (
      only_row boolean primary key default true check (only_row),
      id uuid not null default gen_random_uuid()
    )`.execute(db);
  await sql`insert into export.instance default values`.execute(db);
  await createExports(db);
  await createPlans(db);
  await grantReading(db);
}

/** Kept documents. One made before an import lies in the database, so that it needs no backend; one on schedule lies on a backend, so that it needs no database. */
async function createExports(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table export.exports (
      id uuid primary key,
      reason text not null check (reason in ('scheduled', 'before_import')),
      state text not null default 'writing' check (state in ('writing', 'kept')),
      backend_id uuid references registry.backends (id) on delete cascade,
      key text,
      bytes bigint,
      document_sha256 bytea check (length(document_sha256) = 32),
      counts jsonb,
      created_at timestamptz(3) not null default now(),
      constraint exports_place_check check ((backend_id is null) = (reason = 'before_import') and (backend_id is null) = (key is null)),
      constraint exports_kept_check check (
        state = 'writing' or (bytes is not null and document_sha256 is not null and counts is not null))
    )`.execute(db);
  await sql`create index exports_reason_idx on export.exports (reason, id)`.execute(db);
  await sql`create index exports_backend_id_idx on export.exports (backend_id) where backend_id is not null`.execute(
    db,
  );
  // Pieces of the document, compressed with gzip.
  await sql`
    create table export.export_pieces (
      export_id uuid not null references export.exports (id) on delete cascade,
      position integer not null,
      content bytea not null,
      primary key (export_id, position)
    )`.execute(db);
  await sql`alter table export.export_pieces alter column content set storage external`.execute(db);
}

/** A document that may be imported. Its records lie in tables of their own, `export.staged_<number>_<section>`. */
async function createPlans(db: Kysely<unknown>): Promise<void> {
  await sql`create sequence export.staged_numbers`.execute(db);
  await sql`
    create table export.plans (
      id uuid primary key,
      user_id uuid not null,
      token_sha256 bytea not null unique check (length(token_sha256) = 32),
      document_sha256 bytea not null check (length(document_sha256) = 32),
      state_digest text not null,
      staged_number bigint not null,
      counts jsonb not null,
      created_at timestamptz(3) not null default now(),
      expires_at timestamptz(3) not null
    )`.execute(db);
  await sql`create index plans_expires_at_idx on export.plans (expires_at)`.execute(db);
}

async function grantReading(db: Kysely<unknown>): Promise<void> {
  // Which secrets a backend has, and nothing of them.
  await sql`
    create view registry.backend_secret_fields as
    select backend_id, array_agg(field order by field collate "C") as fields
    from registry.backend_secrets group by backend_id`.execute(db);
  await sql`grant usage, create on schema export to stowage_export`.execute(db);
  await sql`grant usage on schema registry, catalog, placement, upload to stowage_export`.execute(db);
  await sql`grant usage on sequence export.staged_numbers to stowage_export`.execute(db);
  await sql`grant select on export.instance to stowage_export`.execute(db);
  await sql`
    grant select, insert, update, delete on export.exports, export.export_pieces, export.plans
    to stowage_export`.execute(db);
  await sql`
    grant select on registry.backends, registry.backend_secret_fields, catalog.blobs, catalog.replicas, catalog.nodes,
      placement.policies, placement.policy_backends to stowage_export`.execute(db);
}
