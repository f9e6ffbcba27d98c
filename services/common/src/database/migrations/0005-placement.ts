import { sql } from 'kysely';
import type { Kysely } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`create schema placement`.execute(db);
  await sql`
    create table placement.policies (
      file_class text primary key check (file_class ~ '^[a-z][a-z0-9_-]{0,62}$'),
      replicas integer not null,
      sync_replicas integer not null default 1,
      version bigint not null default 1,
      updated_at timestamptz(3) not null default now(),
      check (1 <= sync_replicas and sync_replicas <= replicas)
    )`.execute(db);
  await sql`
    create table placement.policy_backends (
      file_class text not null references placement.policies (file_class) on delete cascade,
      position integer not null,
      backend_id uuid not null constraint policy_backends_backend_id_fkey references registry.backends (id),
      primary key (file_class, position),
      unique (file_class, backend_id)
    )`.execute(db);
  await sql`create index policy_backends_backend_id_idx on placement.policy_backends (backend_id)`.execute(db);
  // What catalog tells of a file's placement needs the wanted number of copies, and nothing else.
  await sql`create view placement.wanted_replicas as select file_class, replicas from placement.policies`.execute(db);
  await sql`grant usage on schema placement to stowage_placement, stowage_catalog`.execute(db);
  await sql`
    grant select, insert, update, delete on placement.policies, placement.policy_backends to stowage_placement`.execute(
    db,
  );
  await sql`grant select on placement.wanted_replicas to stowage_catalog`.execute(db);
}
