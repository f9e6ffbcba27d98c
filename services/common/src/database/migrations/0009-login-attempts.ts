import { sql } from 'kysely';
import type { Kysely } from 'kysely';

/** Every login looks for counts of long ago; while many are guessed at, there are many that are not. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`create index login_attempts_window_idx on identity.login_attempts (window_started_at)`.execute(db);
}
