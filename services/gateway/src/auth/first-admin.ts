import { randomBytes } from 'node:crypto';
import type { Kysely } from 'kysely';
import { query } from '@stowage/common/database/transaction';
import { newId } from '@stowage/common/ids';
import type { GatewaySettings } from '../settings.ts';
import type { Tables } from '../tables.ts';
import { hashPassword } from './passwords.ts';

/**
 * Makes the first admin where there is no user at all. Gives the password where it was made up here: whoever calls
 * must show it once, for nothing but its hash is kept.
 */
export async function makeFirstAdmin(
  db: Kysely<Tables>,
  settings: Pick<GatewaySettings, 'adminUsername' | 'adminPassword'>,
): Promise<{ username: string; password: string } | null> {
  const any = await query(() => db.selectFrom('identity.users').select('id').limit(1).executeTakeFirst());
  if (any) return null;
  const password = settings.adminPassword ?? randomBytes(18).toString('base64url');
  const values = {
    id: newId(),
    username: settings.adminUsername,
    role: 'admin' as const,
    password_hash: await hashPassword(password),
  };
  const inserted = await query(() =>
    db
      .insertInto('identity.users')
      .values(values)
      .onConflict((conflict) => conflict.column('username').doNothing())
      .returning('id')
      .executeTakeFirst(),
  );
  return inserted && settings.adminPassword === null ? { username: settings.adminUsername, password } : null;
}
