import { sql } from 'kysely';
import type { Kysely } from 'kysely';

/** Where a short upload lies sealed is no longer noted: it is found by its blob's id. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`alter table upload.uploads drop constraint uploads_finalized_check`.execute(db);
}
