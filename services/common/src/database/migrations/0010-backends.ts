import { sql } from 'kysely';
import type { Kysely } from 'kysely';

/** Sealed secrets, what a series of checks showed, and what keeps a backend from being deleted. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await createSecrets(db);
  await sql`
    alter table registry.backends
      add column marked boolean not null default false,
      add column secrets_version bigint not null default 1,
      add column health_step text,
      add column health_failures integer not null default 0,
      add column health_successes integer not null default 0`.execute(db);
  await sql`update registry.backends set marked = true where health_checked_at is not null`.execute(db);
  await countReplicas(db);
  await showHolders(db);
}

async function createSecrets(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table registry.backend_secrets (
      backend_id uuid not null references registry.backends (id) on delete cascade,
      field text not null,
      key_id text not null,
      nonce bytea not null check (length(nonce) = 12),
      sealed bytea not null,
      sealed_at timestamptz(3) not null default now(),
      primary key (backend_id, field)
    )`.execute(db);
  await sql`create index backend_secrets_key_id_idx on registry.backend_secrets (key_id)`.execute(db);
  // A known word sealed under each key: tells a key from another of the same id.
  await sql`
    create table registry.secret_keys (
      id text primary key,
      nonce bytea not null check (length(nonce) = 12),
      canary bytea not null,
      created_at timestamptz(3) not null default now()
    )`.execute(db);
  await sql`
    grant select, insert, update, delete on registry.backend_secrets, registry.secret_keys
    to stowage_backend_registry`.execute(db);
}

/**
 * Kept counts: to count millions of replicas takes seconds. They are spread over many rows for each backend, so that
 * commits of different connections do not wait for each other.
 */
async function countReplicas(db: Kysely<unknown>): Promise<void> {
  await sql`lock table catalog.replicas in share row exclusive mode`.execute(db);
  await sql`
    create table catalog.replica_counts (
      backend_id uuid not null references registry.backends (id) on delete cascade,
      slot integer not null,
      replicas bigint not null,
      bytes bigint not null,
      primary key (backend_id, slot)
    ) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)`.execute(db);
  await sql`
    insert into catalog.replica_counts (backend_id, slot, replicas, bytes)
    select r.backend_id, 0, count(*), sum(b.size)
    from catalog.replicas r join catalog.blobs b on b.id = r.blob_id group by r.backend_id`.execute(db);
  await sql`
    create function catalog.count_replicas() returns trigger language plpgsql as ${sql.lit(`
      declare
        sign integer := case tg_op when 'DELETE' then -1 else 1 end;
      begin
        insert into catalog.replica_counts as kept (backend_id, slot, replicas, bytes)
        select c.backend_id, pg_backend_pid() % 256, sign * count(*), sign * sum(b.size)
        from changed c join catalog.blobs b on b.id = c.blob_id group by c.backend_id order by c.backend_id
        on conflict (backend_id, slot)
          do update set replicas = kept.replicas + excluded.replicas, bytes = kept.bytes + excluded.bytes;
        return null;
      end`)}`.execute(db);
  await sql`
    create trigger replicas_inserted after insert on catalog.replicas referencing new table as changed
    for each statement execute function catalog.count_replicas()`.execute(db);
  await sql`
    create trigger replicas_deleted after delete on catalog.replicas referencing old table as changed
    for each statement execute function catalog.count_replicas()`.execute(db);
  await sql`
    create function catalog.count_no_replicas() returns trigger language plpgsql as ${sql.lit(`
      begin
        delete from catalog.replica_counts;
        return null;
      end`)}`.execute(db);
  await sql`
    create trigger replicas_truncated after truncate on catalog.replicas
    for each statement execute function catalog.count_no_replicas()`.execute(db);
  await sql`grant select, insert, update, delete on catalog.replica_counts to stowage_catalog`.execute(db);
}

/** What backend-registry has to know of its neighbours before it deletes a backend, and nothing else. */
async function showHolders(db: Kysely<unknown>): Promise<void> {
  await sql`
    create view catalog.backend_usage as
    select backend_id, sum(replicas)::bigint as replicas, sum(bytes)::bigint as bytes
    from catalog.replica_counts group by backend_id having sum(replicas) <> 0`.execute(db);
  await sql`
    create view upload.backend_uploads as
    select backend_id, count(*) as uploads from upload.uploads where backend_id is not null group by backend_id`.execute(
    db,
  );
  await sql`
    create view placement.backend_policies as select backend_id, file_class from placement.policy_backends`.execute(db);
  await sql`grant usage on schema catalog, upload, placement to stowage_backend_registry`.execute(db);
  await sql`
    grant select on catalog.backend_usage, upload.backend_uploads, placement.backend_policies
    to stowage_backend_registry`.execute(db);
  await sql`grant select on catalog.backend_usage to stowage_catalog`.execute(db);
}
