import { sql } from 'kysely';
import type { Kysely } from 'kysely';

/** What the look at all metadata reads beyond what an export holds. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create view upload.upload_standing as
    select u.id, u.state, u.expires_at, exists (
      select from upload.leases l where l.upload_id = u.id and l.expires_at > now()) as is_being_written
    from upload.uploads u`.execute(db);
  await sql`
    grant select on upload.upload_standing, catalog.replica_counts, placement.unknown_objects to stowage_export`.execute(
    db,
  );
}
