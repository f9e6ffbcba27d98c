import { createHash, randomBytes } from 'node:crypto';
import { sql } from 'kysely';
import type { Kysely, QueryExecutorProvider } from 'kysely';
import { query } from '@stowage/common/database/transaction';
import { AppError } from '@stowage/common/errors';
import { newId } from '@stowage/common/ids';
import type { Actor, Role } from '@stowage/common/rpc/context';
import type { Tables } from '../tables.ts';

/** How long tokens live, in ms: after their last use, and at most. */
export interface SessionLimits {
  sessionTtlMs: number;
  sessionMaxMs: number;
}

/** A live session with its user, and the mode of the service, all read in one query for each request. */
export interface Session {
  id: string;
  actor: Actor;
  userCreatedAt: Date;
  createdAt: Date;
  expiresAt: Date;
  readOnly: boolean;
}

/** Where sessions are kept: `reads` is for short reading. */
export interface SessionStore {
  db: QueryExecutorProvider;
  reads: QueryExecutorProvider;
}

interface SessionRow {
  id: string;
  created_at: Date;
  last_used_at: Date;
  stale: boolean;
  user_id: string;
  username: string;
  role: Role;
  user_created_at: Date;
  mode: string;
}

const tokenPattern = /^stw_[A-Za-z0-9_-]{43}$/;

/**
 * Makes a session for a user whose password still is the one that was checked; null where it was changed meanwhile, or the
 * user disabled: whoever did that ended all sessions, and none may come after. It lives `livesMs` from now on unless it is used; the
 * token is given once and kept only as a hash. Expired sessions of the user go with it. Times are the database's, whatever the clock here says.
 */
export async function createSession(
  db: Kysely<Tables>,
  { userId, passwordHash }: { userId: string; passwordHash: string },
  limits: SessionLimits,
): Promise<{ token: string; expiresAt: Date; livesMs: number } | null> {
  const token = `stw_${randomBytes(32).toString('base64url')}`;
  const livesMs = Math.min(limits.sessionTtlMs, limits.sessionMaxMs);
  return query(async () => {
    await db
      .deleteFrom('identity.sessions')
      .where('user_id', '=', userId)
      .where((eb) =>
        eb.or([
          eb('last_used_at', '<', sql<Date>`now() - ${limits.sessionTtlMs} * interval '1 ms'`),
          eb('created_at', '<', sql<Date>`now() - ${limits.sessionMaxMs} * interval '1 ms'`),
        ]),
      )
      .execute();
    const { rows } = await sql<{ created_at: Date }>`
      insert into identity.sessions (id, token_hash, user_id)
      select ${newId()}::uuid, ${hashOf(token)}, u.id from identity.users u
      where u.id = ${userId} and u.password_hash = ${passwordHash} and not u.disabled for share
      returning created_at`.execute(db);
    const [made] = rows;
    return made ? { token, expiresAt: new Date(made.created_at.getTime() + livesMs), livesMs } : null;
  });
}

/** Finds the session of a token by one prepared query of `reads`. Throws `unauthenticated` for any other token. */
export async function findSession({ db, reads }: SessionStore, token: string, limits: SessionLimits): Promise<Session> {
  if (!tokenPattern.test(token)) throw badToken();
  const { rows } = await query(() =>
    sql<SessionRow>`
      select s.id, s.created_at, s.last_used_at, s.last_used_at < now() - interval '1 minute' as stale,
        u.id as user_id, u.username, u.role, u.created_at as user_created_at,
        (select mode from identity.system_mode) as mode
      from identity.sessions s join identity.users u on u.id = s.user_id
      where s.token_hash = ${hashOf(token)} and not u.disabled
        and s.last_used_at > now() - ${limits.sessionTtlMs} * interval '1 ms'
        and s.created_at > now() - ${limits.sessionMaxMs} * interval '1 ms'`.execute(reads),
  );
  const row = rows[0];
  if (!row) throw badToken();
  const lastUsedAt = (row.stale ? await noteUse(db, row) : row.last_used_at).getTime();
  return {
    id: row.id,
    actor: { userId: row.user_id, username: row.username, role: row.role },
    userCreatedAt: row.user_created_at,
    createdAt: row.created_at,
    expiresAt: new Date(Math.min(lastUsedAt + limits.sessionTtlMs, row.created_at.getTime() + limits.sessionMaxMs)),
    readOnly: row.mode === 'read_only',
  };
}

/** Gives when the database says that it was. */
async function noteUse(db: QueryExecutorProvider, row: SessionRow): Promise<Date> {
  const { rows } = await query(() =>
    sql<{ last_used_at: Date }>`
      update identity.sessions set last_used_at = now() where id = ${row.id} returning last_used_at`.execute(db),
  );
  return rows[0]?.last_used_at ?? row.last_used_at;
}

/** Ends a session: from then on no replica accepts its token. */
export async function endSession(db: Kysely<Tables>, sessionId: string): Promise<void> {
  await query(() => db.deleteFrom('identity.sessions').where('id', '=', sessionId).execute());
}

function hashOf(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}

function badToken(): AppError {
  return new AppError('unauthenticated', 'The access token is missing, wrong or no longer valid: log in again.');
}
