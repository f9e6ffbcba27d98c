import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { openDatabase, queryBuilder } from '@stowage/common/database/database';
import type { Database } from '@stowage/common/database/database';
import { newId } from '@stowage/common/ids';
import { createLogger } from '@stowage/common/runtime/logger';
import { startTestDatabase } from '@stowage/tests/support/test-database';
import type { TestDatabase } from '@stowage/tests/support/test-database';
import type { Kysely } from 'kysely';
import type { Tables } from '../tables.ts';
import { createSession, findSession } from './sessions.ts';

const minute = 60_000;
const limits = { sessionTtlMs: 30 * minute, sessionMaxMs: 600 * minute };
let server: TestDatabase;
let database: Database;
let db: Kysely<Tables>;
let userId: string;

beforeAll(async () => {
  server = await startTestDatabase();
  const logger = createLogger('test', 'silent');
  database = openDatabase({ url: server.url, service: 'gateway', connections: 2, logger });
  db = queryBuilder<Tables>(database);
});

afterAll(async () => {
  await database.close();
  await server.close();
});

beforeEach(async () => {
  userId = newId();
  const user = { id: userId, username: `user-${userId}`, password_hash: 'none', role: 'viewer' } as const;
  await db.insertInto('identity.users').values(user).execute();
});

afterEach(() => {
  jest.restoreAllMocks();
});

async function open(): Promise<{ token: string; expiresAt: Date; livesMs: number }> {
  const session = await createSession(db, { userId, passwordHash: 'none' }, limits);
  if (!session) throw new Error('the user was changed');
  return session;
}

test.each([{ password_hash: 'another' }, { disabled: true }])(
  'a login that began before its user was changed (%j) makes no session',
  async (change) => {
    const trx = await db.startTransaction().execute();
    await trx.updateTable('identity.users').set(change).where('id', '=', userId).execute();
    const waiting = createSession(db, { userId, passwordHash: 'none' }, limits);
    await trx.commit().execute();
    expect(await waiting).toBeNull();
  },
);

describe.each([60, -60])('On a machine whose clock is %d minutes wrong', (minutes) => {
  test('a login ends no live session, and sessions live as long as the database says', async () => {
    const right = Date.now();
    const { token } = await open();
    jest.spyOn(Date, 'now').mockReturnValue(right + minutes * minute);
    const later = await open();
    for (const live of [token, later.token]) {
      const { expiresAt } = await findSession({ db, reads: db }, live, limits);
      expect(Math.abs(expiresAt.getTime() - right - limits.sessionTtlMs)).toBeLessThan(minute);
    }
    expect(Math.abs(later.expiresAt.getTime() - right - limits.sessionTtlMs)).toBeLessThan(minute);
    expect(later.livesMs).toBe(limits.sessionTtlMs);
  });

  test('a session that was not used for too long is ended by the next login, and found no more', async () => {
    const { token } = await open();
    await db
      .updateTable('identity.sessions')
      .set({ last_used_at: new Date(Date.now() - 31 * minute) })
      .where('user_id', '=', userId)
      .execute();
    jest.spyOn(Date, 'now').mockReturnValue(Date.now() + minutes * minute);
    await expect(findSession({ db, reads: db }, token, limits)).rejects.toMatchObject({ code: 'unauthenticated' });
    await open();
    const rows = await db.selectFrom('identity.sessions').select('id').where('user_id', '=', userId).execute();
    expect(rows).toHaveLength(1);
  });
});
