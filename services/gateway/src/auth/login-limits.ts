import { createHash } from 'node:crypto';
import { sql } from 'kysely';
import type { Kysely } from 'kysely';
import { query } from '@stowage/common/database/transaction';
import { AppError } from '@stowage/common/errors';
import type { GatewaySettings } from '../settings.ts';
import type { Tables } from '../tables.ts';

type Limits = Pick<GatewaySettings, 'loginWindowMs' | 'loginFailuresPerUser' | 'loginFailuresPerAddress'>;

/**
 * Counts a login as failed before the password is looked at, so that parallel guesses through several gateways can't
 * slip by: in PostgreSQL, per user name and address and per address. Throws `rate_limited` above a limit.
 */
export async function countAttempt(
  db: Kysely<Tables>,
  username: string,
  address: string,
  limits: Limits,
): Promise<void> {
  const keys = keysOf(username, address);
  await dropOldCounts(db, limits);
  const { rows } = await query(() =>
    sql<{ key: string; attempts: number; remaining_ms: number }>`
      insert into identity.login_attempts as a (key, attempts, window_started_at)
      values (${keys.pair}, 1, now()), (${keys.address}, 1, now())
      on conflict (key) do update set
        attempts = case when a.window_started_at < now() - ${limits.loginWindowMs} * interval '1 ms' then 1 else a.attempts + 1 end,
        window_started_at = case when a.window_started_at < now() - ${limits.loginWindowMs} * interval '1 ms' then now() else a.window_started_at end
      returning key, attempts,
        extract(epoch from window_started_at + ${limits.loginWindowMs} * interval '1 ms' - now())::float8 * 1000 as remaining_ms`.execute(
      db,
    ),
  );
  for (const row of rows) {
    const limit = row.key === keys.pair ? limits.loginFailuresPerUser : limits.loginFailuresPerAddress;
    if (row.attempts <= limit) continue;
    const members = { retry_after: Math.max(1, Math.ceil(row.remaining_ms / 1000)) };
    throw new AppError('rate_limited', 'Too many failed logins: wait before you try again.', { members });
  }
}

/** Takes a login that turned out right back from the counts. */
export async function forgiveAttempt(db: Kysely<Tables>, username: string, address: string): Promise<void> {
  const keys = keysOf(username, address);
  await query(async () => {
    await sql`delete from identity.login_attempts where key = ${keys.pair}`.execute(db);
    await sql`update identity.login_attempts set attempts = greatest(0, attempts - 1) where key = ${keys.address}`.execute(
      db,
    );
  });
}

/** Each login adds two counts and drops more old ones, so that guessing does not fill the table. */
async function dropOldCounts(db: Kysely<Tables>, limits: Limits): Promise<void> {
  await query(() =>
    sql`
      delete from identity.login_attempts where key in (select key from identity.login_attempts
        where window_started_at < now() - ${limits.loginWindowMs} * interval '1 ms' limit 10
        for update skip locked)`.execute(db),
  );
}

/** Hashed, so that the table holds neither what people typed nor names of any length. */
function keysOf(username: string, address: string): { pair: string; address: string } {
  const hash = (text: string): string => createHash('sha256').update(text).digest('base64url');
  return { pair: `user:${hash(`${username}\n${address}`)}`, address: `address:${hash(address)}` };
}
