import type { Kysely, Selectable } from 'kysely';
import { query } from '@stowage/common/database/transaction';
import { AppError } from '@stowage/common/errors';
import type { GatewaySettings } from '../settings.ts';
import type { Tables } from '../tables.ts';
import { countAttempt, forgiveAttempt } from './login-limits.ts';
import { hashPassword, verifyPassword } from './passwords.ts';
import { createSession } from './sessions.ts';
import { toUser } from './users.ts';
import type { User } from './users.ts';

export interface LogIn {
  token: string;
  expiresAt: Date;
  /** How long from now that is, in ms. */
  livesMs: number;
  user: User;
}

/** A hash of nothing that anybody knows: an unknown user costs the same time as a wrong password. */
const dummyHash = hashPassword(crypto.randomUUID());

/** Checks name and password and makes a session. Throws `invalid_credentials` or `rate_limited`. */
export async function logIn(
  db: Kysely<Tables>,
  credentials: { username: string; password: string; address: string },
  settings: GatewaySettings,
): Promise<LogIn> {
  const { username, password, address } = credentials;
  await countAttempt(db, username, address, settings);
  // Once more where the hash was changed meanwhile: to a new password, or by another login that made it anew.
  const entered = (await enter(db, credentials, settings)) ?? (await enter(db, credentials, settings));
  if (!entered) throw wrong();
  const { session, row, outdated } = entered;
  await forgiveAttempt(db, username, address);
  if (outdated) await rehash(db, row.id, row.password_hash, password);
  return { ...session, user: toUser(row) };
}

type UserRow = Selectable<Tables['identity.users']>;

interface Entered {
  session: Omit<LogIn, 'user'>;
  row: UserRow;
  outdated: boolean;
}

/** Null where the user changed between the look at the password and the session. */
async function enter(
  db: Kysely<Tables>,
  { username, password }: { username: string; password: string },
  settings: GatewaySettings,
): Promise<Entered | null> {
  const row = await findUser(db, username);
  const { right, outdated } = await verifyPassword(password, row?.password_hash ?? (await dummyHash));
  if (!row || !right || row.disabled) throw wrong();
  const session = await createSession(db, { userId: row.id, passwordHash: row.password_hash }, settings);
  return session && { session, row, outdated };
}

function wrong(): AppError {
  return new AppError('invalid_credentials', 'The user name or the password is wrong.');
}

async function findUser(db: Kysely<Tables>, username: string): Promise<UserRow | undefined> {
  // PostgreSQL takes no NUL in a text, and no user has one in the name.
  if (username.includes('\u0000')) return undefined;
  return query(() => db.selectFrom('identity.users').selectAll().where('username', '=', username).executeTakeFirst());
}

async function rehash(db: Kysely<Tables>, userId: string, before: string, password: string): Promise<void> {
  const after = await hashPassword(password);
  await query(() =>
    db
      .updateTable('identity.users')
      .set({ password_hash: after })
      .where('id', '=', userId)
      .where('password_hash', '=', before)
      .execute(),
  );
}
