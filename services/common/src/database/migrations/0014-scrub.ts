import { sql } from 'kysely';
import type { Kysely } from 'kysely';

/** The replicas of a backend by when they were last read whole. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create index replicas_read_idx on catalog.replicas (backend_id, (coalesce(verified_at, created_at)))
    where state in ('available', 'unverified')`.execute(db);
}
