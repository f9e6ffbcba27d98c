import { sql } from 'kysely';
import type { Kysely } from 'kysely';

const allServices = sql`stowage_gateway, stowage_catalog, stowage_upload, stowage_backend_registry, stowage_placement, stowage_export`;

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`create schema jobs`.execute(db);
  await createJobs(db);
  await sql`
    create table jobs.outbox (
      id uuid primary key,
      subject text not null,
      data jsonb not null,
      traceparent text,
      created_at timestamptz(3) not null default now()
    )`.execute(db);
  await sql`create index outbox_created_at_idx on jobs.outbox (created_at)`.execute(db);
  await sql`
    create table jobs.idempotency_keys (
      user_id uuid not null,
      route text not null,
      key text not null,
      fingerprint text not null,
      response bytea,
      created_at timestamptz(3) not null default now(),
      primary key (user_id, route, key)
    )`.execute(db);
  await sql`create index idempotency_keys_created_at_idx on jobs.idempotency_keys (created_at)`.execute(db);
  await sql`grant usage on schema jobs to ${allServices}`.execute(db);
  await sql`grant select, insert, update, delete on all tables in schema jobs to ${allServices}`.execute(db);
}

async function createJobs(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table jobs.jobs (
      id uuid primary key,
      kind text not null,
      state text not null default 'pending' check (state in ('pending', 'running', 'succeeded', 'failed', 'cancelled')),
      attempt integer not null default 0,
      max_attempts integer not null default 5 check (max_attempts > 0),
      run_after timestamptz(3) not null default now(),
      params jsonb not null default '{}',
      progress_done bigint not null default 0,
      progress_total bigint,
      progress_bytes bigint not null default 0,
      result jsonb,
      error_code text,
      error_detail text,
      dedupe_key text,
      traceparent text,
      lease_holder uuid,
      lease_until timestamptz(3),
      fence bigint not null default 0,
      created_at timestamptz(3) not null default now(),
      started_at timestamptz(3),
      finished_at timestamptz(3),
      constraint jobs_finished_check check ((finished_at is not null) = (state in ('succeeded', 'failed', 'cancelled'))),
      constraint jobs_lease_check check ((state = 'running') = (lease_until is not null))
    ) with (autovacuum_vacuum_scale_factor = 0.01)`.execute(db);
  await sql`
    create unique index jobs_dedupe_key on jobs.jobs (kind, dedupe_key)
    where dedupe_key is not null and state = 'pending'`.execute(db);
  await sql`create index jobs_due_idx on jobs.jobs (kind, run_after, id) where state = 'pending'`.execute(db);
  await sql`create index jobs_lease_idx on jobs.jobs (kind, lease_until) where state = 'running'`.execute(db);
  await sql`create index jobs_kind_idx on jobs.jobs (kind, id)`.execute(db);
  await sql`create index jobs_state_idx on jobs.jobs (state, id)`.execute(db);
  await sql`create index jobs_state_kind_idx on jobs.jobs (state, kind, id)`.execute(db);
  await sql`create index jobs_finished_idx on jobs.jobs (state, finished_at) where finished_at is not null`.execute(db);
}
