import { sql } from 'kysely';
import type { Kysely } from 'kysely';

/** What an import writes of other services' tables. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    grant insert, update, delete on catalog.nodes, catalog.blobs, catalog.replicas, registry.backends,
      placement.policies, placement.policy_backends to stowage_export`.execute(db);
  // For the trigger on replicas, which writes as whoever writes them.
  await sql`grant select, insert, update on catalog.replica_counts to stowage_export`.execute(db);
  // To forget secrets, never to read them.
  await sql`grant select (backend_id), delete on registry.backend_secrets to stowage_export`.execute(db);
  await sql`grant select, update on upload.uploads to stowage_export`.execute(db);
  await sql`grant usage on sequence upload.fences to stowage_export`.execute(db);
  await sql`grant update on export.instance to stowage_export`.execute(db);
}
