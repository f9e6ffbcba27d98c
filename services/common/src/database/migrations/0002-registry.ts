import { sql } from 'kysely';
import type { Kysely } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`create schema registry`.execute(db);
  await sql`
    create table registry.backends (
      id uuid primary key,
      name text collate "C" not null constraint backends_name_key unique,
      type text not null check (type in ('local_directory', 's3', 'webdav')),
      enabled boolean not null default true,
      is_default boolean not null default false,
      config jsonb not null,
      health_status text not null default 'unknown' check (health_status in ('unknown', 'healthy', 'unhealthy')),
      health_checked_at timestamptz(3),
      health_latency_ms double precision,
      health_detail text,
      version bigint not null default 1,
      created_at timestamptz(3) not null default now(),
      updated_at timestamptz(3) not null default now()
    )`.execute(db);
  await sql`create unique index backends_default_key on registry.backends (is_default) where is_default`.execute(db);
  await sql`create view registry.backend_names as select id, name from registry.backends`.execute(db);
  await sql`grant usage on schema registry to stowage_backend_registry, stowage_catalog, stowage_placement`.execute(db);
  await sql`grant select, insert, update, delete on registry.backends to stowage_backend_registry`.execute(db);
  await sql`grant select on registry.backend_names to stowage_catalog, stowage_placement`.execute(db);
}
