import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import pg from 'pg';
import { openDatabase, queryBuilder } from '@stowage/common/database/database';
import type { Database } from '@stowage/common/database/database';
import { createLogger } from '@stowage/common/runtime/logger';
import { faultsOf, statementsOf } from '@stowage/tests/support/query-plans';
import { startTestDatabase } from '@stowage/tests/support/test-database';
import type { TestDatabase } from '@stowage/tests/support/test-database';
import type { Tables } from '../tables.ts';
import { countAttempt, forgiveAttempt } from './login-limits.ts';
import { createSession, endSession, findSession } from './sessions.ts';

const big = ['users', 'sessions', 'login_attempts'];
const limits = { sessionTtlMs: 43_200_000, sessionMaxMs: 604_800_000 };
const userId = '01900000-0000-7000-8000-000000000001';

let database: TestDatabase;
let admin: pg.Pool;
let own: Database;
beforeAll(async () => {
  database = await startTestDatabase();
  admin = new pg.Pool({ connectionString: database.url, max: 2 });
  admin.on('error', () => undefined);
  own = openDatabase({ url: database.url, service: 'gateway', connections: 2, logger: createLogger('test', 'silent') });
  const id = "('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid";
  await admin.query(
    `insert into identity.users (id, username, password_hash, role)
     select ${id}, 'user-' || n, '', 'viewer' from generate_series(1, 10000) n`,
  );
  await admin.query(
    `insert into identity.sessions (id, token_hash, user_id)
     select gen_random_uuid(), sha256(n::text::bytea), ('01900000-0000-7000-8000-' || lpad(to_hex(n % 10000 + 1), 12, '0'))::uuid
     from generate_series(1, 100000) n`,
  );
  await admin.query(
    `insert into identity.login_attempts (key, attempts, window_started_at)
     select 'key-' || n, 1, now() from generate_series(1, 100000) n`,
  );
  await admin.query('vacuum analyze');
}, 60_000);
afterAll(async () => {
  await own.close();
  await admin.end();
  await database.close();
});

async function faults(work: () => Promise<unknown>): Promise<string[]> {
  const statements = await statementsOf(work);
  expect(statements.length).toBeGreaterThan(0);
  const found = await Promise.all(statements.map((statement) => faultsOf(admin, statement, big)));
  return found.flat();
}

test('a session is made, found, renewed and ended without looking at the other 100,000', async () => {
  const db = queryBuilder<Tables>(own);
  const store = { db, reads: db };
  const user = { userId, passwordHash: '' };
  expect(await faults(() => createSession(db, user, limits))).toEqual([]);
  const { token = '' } = (await createSession(db, user, limits)) ?? {};
  await admin.query("update identity.sessions set last_used_at = now() - interval '2 minutes' where user_id = $1", [
    userId,
  ]);
  const statements = await statementsOf(() => findSession(store, token, limits));
  // It is found, and noted as used.
  expect(statements).toHaveLength(2);
  expect(await faults(() => findSession(store, token, limits))).toEqual([]);
  const { id } = await findSession(store, token, limits);
  for (const statement of statements) expect(await faultsOf(admin, statement, big)).toEqual([]);
  expect(await faults(() => endSession(db, id))).toEqual([]);
});

test('an unknown token costs no more', async () => {
  const token = `stw_${randomBytes(32).toString('base64url')}`;
  const db = queryBuilder<Tables>(own);
  const store = { db, reads: db };
  expect(await faults(() => findSession(store, token, limits).catch(() => undefined))).toEqual([]);
});

test('a login is counted and forgiven without looking at 100,000 that failed', async () => {
  const db = queryBuilder<Tables>(own);
  const logins = { loginWindowMs: 900_000, loginFailuresPerUser: 10, loginFailuresPerAddress: 100 };
  expect(await faults(() => countAttempt(db, 'ann', '127.0.0.1', logins))).toEqual([]);
  expect(await faults(() => forgiveAttempt(db, 'ann', '127.0.0.1'))).toEqual([]);
});
