import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { sql } from 'kysely';
import pg from 'pg';
import { startTestDatabase } from '@stowage/tests/support/test-database';
import type { TestDatabase } from '@stowage/tests/support/test-database';
import { createLogger } from '../runtime/logger.ts';
import { toDatabaseError } from './database-error.ts';
import { openDatabase, queryBuilder } from './database.ts';
import { inTransaction } from './transaction.ts';

let server: TestDatabase;

beforeAll(async () => {
  server = await startTestDatabase();
});

afterAll(() => server.close());

async function terminate(pid: number): Promise<void> {
  const superuser = new pg.Client({ connectionString: server.url });
  await superuser.connect();
  await superuser.query('select pg_terminate_backend($1)', [pid]);
  await superuser.end();
}

test('a connection that breaks between two queries of a transaction fails that transaction, and not the process', async () => {
  const logger = createLogger('test', 'silent');
  const database = openDatabase({ url: server.url, service: 'catalog', connections: 1, logger });
  const db = queryBuilder<Record<string, never>>(database);
  const { promise: ended, resolve } = Promise.withResolvers<void>();
  database.pool.once('connect', (client) => client.once('end', resolve));
  try {
    const broken = inTransaction(db, async (trx) => {
      const { rows } = await sql<{ pid: number }>`select pg_backend_pid() as pid`.execute(trx);
      await terminate(rows[0]?.pid ?? 0);
      await ended;
      await sql`select 1`.execute(trx);
    });
    await expect(broken).rejects.toMatchObject({ code: 'unavailable' });
    expect((await sql<{ one: number }>`select 1 as one`.execute(db)).rows).toEqual([{ one: 1 }]);
  } finally {
    await database.close();
  }
});

test('a database whose own disk fails is unavailable, as one that is down', () => {
  const failure = new pg.DatabaseError('could not open file "base/5/PG_VERSION": Input/output error', 0, 'error');
  failure.code = '58030';
  expect(toDatabaseError(failure)).toMatchObject({ code: 'unavailable' });
});
