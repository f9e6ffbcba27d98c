import { sql } from 'kysely';
import type { Kysely, Selectable, Transaction } from 'kysely';
import { decodeCursor, encodeCursor } from '@stowage/common/cursor';
import { violatedConstraint } from '@stowage/common/database/database-error';
import { inTransaction, query } from '@stowage/common/database/transaction';
import { AppError } from '@stowage/common/errors';
import { newId } from '@stowage/common/ids';
import type { Role } from '@stowage/common/rpc/context';
import type { Tables } from '../tables.ts';
import { checkNewPassword, hashPassword } from './passwords.ts';

type UserRow = Selectable<Tables['identity.users']>;

/** A user as the API shows one. */
export interface User {
  id: string;
  username: string;
  role: Role;
  disabled: boolean;
  created_at: string;
}

export function toUser(row: Pick<UserRow, 'id' | 'username' | 'role' | 'disabled' | 'created_at'>): User {
  const { id, username, role, disabled } = row;
  return { id, username, role, disabled, created_at: row.created_at.toISOString() };
}

/** One page of the users, by name. */
export async function listUsers(
  db: Kysely<Tables>,
  page: { limit: number; cursor: string },
): Promise<{ items: User[]; next_cursor: string | null }> {
  const after = decodeCursor(page.cursor, 1);
  let select = db
    .selectFrom('identity.users')
    .selectAll()
    .orderBy('username')
    .limit(page.limit + 1);
  if (after?.[0] !== undefined) select = select.where('username', '>', after[0]);
  const rows = await query(() => select.execute());
  const items = rows.slice(0, page.limit);
  const last = items.at(-1);
  return {
    items: items.map(toUser),
    next_cursor: rows.length > page.limit && last ? encodeCursor([last.username]) : null,
  };
}

/** Makes a user. Throws `name_conflict`. */
export async function createUser(
  db: Kysely<Tables>,
  user: { username: string; password: string; role: Role },
): Promise<User> {
  checkNewPassword(user.password, '/password');
  const { username, role } = user;
  const values = { id: newId(), username, role, password_hash: await hashPassword(user.password) };
  try {
    return toUser(await db.insertInto('identity.users').values(values).returningAll().executeTakeFirstOrThrow());
  } catch (error) {
    if (violatedConstraint(error) !== 'users_username_key') throw error;
    throw new AppError('name_conflict', 'There is a user of this name already.');
  }
}

export interface UserChanges {
  role?: Role;
  password?: string;
  disabled?: boolean;
}

/** Changes a user; a new role or password, or disabling, ends the user's sessions. Throws `not_found`, `state_conflict`. */
export async function updateUser(db: Kysely<Tables>, userId: string, changes: UserChanges): Promise<User> {
  if (changes.password !== undefined) checkNewPassword(changes.password, '/password');
  const passwordHash = changes.password === undefined ? undefined : await hashPassword(changes.password);
  return inTransaction(db, async (trx) => {
    const before = await lockUser(trx, userId);
    const role = changes.role ?? before.role;
    const disabled = changes.disabled ?? before.disabled;
    if (role !== 'admin' || disabled) await keepAnAdmin(trx, before);
    const after = await trx
      .updateTable('identity.users')
      .set({ role, disabled, password_hash: passwordHash ?? before.password_hash, updated_at: new Date() })
      .where('id', '=', userId)
      .returningAll()
      .executeTakeFirstOrThrow();
    const ends = passwordHash !== undefined || role !== before.role || (disabled && !before.disabled);
    if (ends) await trx.deleteFrom('identity.sessions').where('user_id', '=', userId).execute();
    return toUser(after);
  });
}

/** Removes a user with all sessions. Throws `not_found`, and `state_conflict` for the last enabled admin. */
export async function deleteUser(db: Kysely<Tables>, userId: string): Promise<void> {
  await inTransaction(db, async (trx) => {
    await keepAnAdmin(trx, await lockUser(trx, userId));
    await trx.deleteFrom('identity.users').where('id', '=', userId).execute();
  });
}

/** All enabled admins are locked in one order first, so that two can't each remove the other. */
async function lockUser(trx: Transaction<Tables>, userId: string): Promise<UserRow> {
  await sql`select id from identity.users where (role = 'admin' and not disabled) or id = ${userId} order by id for update`.execute(
    trx,
  );
  const row = await trx.selectFrom('identity.users').selectAll().where('id', '=', userId).executeTakeFirst();
  if (!row) throw new AppError('not_found', 'There is no user with this id.');
  return row;
}

async function keepAnAdmin(trx: Transaction<Tables>, user: UserRow): Promise<void> {
  if (user.role !== 'admin' || user.disabled) return;
  const other = await trx
    .selectFrom('identity.users')
    .select('id')
    .where('role', '=', 'admin')
    .where('disabled', '=', false)
    .where('id', '!=', user.id)
    .limit(1)
    .executeTakeFirst();
  if (!other) throw new AppError('state_conflict', 'This is the last enabled admin: make another one first.');
}
