import { sql } from 'kysely';
import type { Kysely } from 'kysely';

/** Which job writes a kept export: what it left half-written is known by it. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`alter table export.exports add column job_id uuid`.execute(db);
}
