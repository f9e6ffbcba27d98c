import { sql } from 'kysely';
import type { Kysely } from 'kysely';

/** Content that no file has, by when it may be removed: few of all. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create index blobs_delete_after_idx on catalog.blobs (delete_after) where delete_after is not null`.execute(db);
}
