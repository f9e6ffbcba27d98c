import { sql } from 'kysely';
import type { Kysely } from 'kysely';

/** Which uploads there are, for backend-registry to tell staged content that belongs to none. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`create view upload.known_uploads as select id from upload.uploads`.execute(db);
  await sql`grant select on upload.known_uploads to stowage_backend_registry`.execute(db);
}
