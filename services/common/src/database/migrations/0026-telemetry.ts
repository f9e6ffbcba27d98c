import { sql } from 'kysely';
import type { Kysely } from 'kysely';

/** What traces and metrics need: what began an upload, since when placement is wanted as it is, and what placement may count. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`alter table upload.uploads add column traceparent text`.execute(db);
  // A later change of a backend or policy is why content may lie wrong now that lay right before.
  await sql`
    create view placement.wanted_since as
    select p.file_class, greatest(p.updated_at, (
      select max(greatest(s.health_since, s.updated_at)) from placement.policy_backends b
      join registry.backends s on s.id = b.backend_id where b.file_class = p.file_class)) as since
    from placement.policies p`.execute(db);
  await sql`grant select on placement.wanted_since to stowage_catalog`.execute(db);
  await sql`
    create view registry.backend_types as select id, type, is_default from registry.backends`.execute(db);
  await sql`grant select on registry.backend_types to stowage_placement`.execute(db);
  await sql`grant usage on schema catalog to stowage_placement`.execute(db);
  await sql`grant select on catalog.backend_usage to stowage_placement`.execute(db);
}
