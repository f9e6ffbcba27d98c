import { sql } from 'kysely';
import type { Kysely } from 'kysely';

/** What a plan of a restore looks at beside the metadata themselves, and what it keeps for the import. */
export async function up(db: Kysely<unknown>): Promise<void> {
  // known_backends: those whose secrets may stay, as their place is the same.
  // instance_id: of the installation that the document describes.
  await sql`
    alter table export.plans
      add column known_backends uuid[] not null default '{}',
      add column instance_id uuid`.execute(db);
  await sql`create index plans_user_id_idx on export.plans (user_id, id)`.execute(db);
  await sql`
    create view upload.open_uploads as
    select id, directory_id, backend_id from upload.uploads where state in ('open', 'finalizing')`.execute(db);
  await sql`grant select on upload.open_uploads to stowage_export`.execute(db);
  await sql`grant select on catalog.backend_usage to stowage_export`.execute(db);
  await sql`grant usage on schema identity to stowage_export`.execute(db);
  await sql`grant select on identity.system_mode to stowage_export`.execute(db);
}
