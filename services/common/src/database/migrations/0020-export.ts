import { sql } from 'kysely';
import type { Kysely } from 'kysely';

/** What the export reads of all schemas, and the identity of this installation. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`create schema export`.execute(db);
  await sql`
    create table export.instance (
      only_row boolean primary key default true check (only_row),
      id uuid not null default gen_random_uuid()
    )`.execute(db);
  await sql`insert into export.instance default values`.execute(db);
  // Which secrets a backend has, and nothing of them.
  await sql`
    create view registry.backend_secret_fields as
    select backend_id, array_agg(field order by field collate "C") as fields
    from registry.backend_secrets group by backend_id`.execute(db);
  await sql`grant usage on schema export, registry, catalog, placement, upload to stowage_export`.execute(db);
  await sql`grant select on export.instance to stowage_export`.execute(db);
  await sql`
    grant select on registry.backends, registry.backend_secret_fields, catalog.blobs, catalog.replicas, catalog.nodes,
      placement.policies, placement.policy_backends to stowage_export`.execute(db);
}
