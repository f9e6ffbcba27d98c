import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { sql } from 'kysely';
import type { Kysely } from 'kysely';
import pg from 'pg';
import { startTestDatabase } from '@stowage/tests/support/test-database';
import type { TestDatabase } from '@stowage/tests/support/test-database';
import { until } from '@stowage/tests/support/client';
import { createLogger } from '../runtime/logger.ts';
import type { Database } from './database.ts';
import { toDatabaseError } from './database-error.ts';
import { openDatabase, queryBuilder, readBuilder } from './database.ts';
import { inTransaction, query } from './transaction.ts';

const silent = createLogger('test', 'silent');
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

test('no plan of a request is compiled, whatever the server would do by itself', async () => {
  const database = openDatabase({ url: server.url, service: 'catalog', connections: 1, logger: silent });
  try {
    for (const db of [queryBuilder<Record<string, never>>(database), readBuilder<Record<string, never>>(database)]) {
      const { rows } = await sql<{ jit: string }>`select current_setting('jit') as jit`.execute(db);
      expect(rows).toEqual([{ jit: 'off' }]);
    }
  } finally {
    await database.close();
  }
});

test('a connection that breaks between two queries of a transaction fails that transaction, and not the process', async () => {
  const database = openDatabase({ url: server.url, service: 'catalog', connections: 1, logger: silent });
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

describe('one connection that readers share', () => {
  let database: Database;
  let reads: Kysely<Record<string, never>>;
  beforeEach(() => {
    database = openDatabase({ url: server.url, service: 'catalog', connections: 1, logger: silent });
    reads = readBuilder(database);
  });
  afterEach(() => database.close());

  const backend = async (): Promise<number> => {
    const { rows } = await sql<{ pid: number }>`select pg_backend_pid() as pid`.execute(reads);
    return rows[0]?.pid ?? 0;
  };
  const echo = async (text: string): Promise<string | undefined> => {
    const { rows } = await sql<{ said: string }>`select ${text}::text as said`.execute(reads);
    return rows[0]?.said;
  };

  test('each of many at once gets its own answer, over one connection', async () => {
    const texts = Array.from({ length: 200 }, (_, n) => `text ${n}`);
    expect(await Promise.all(texts.map(echo))).toEqual(texts);
    expect(new Set(await Promise.all([backend(), backend(), backend()])).size).toBe(1);
  });

  test('a statement that fails fails alone', async () => {
    const wrong = query(() => sql`select 1 / ${0}::int`.execute(reads));
    const right = echo('right');
    await expect(wrong).rejects.toThrow();
    expect(await right).toBe('right');
  });

  test('a connection that breaks fails those who wait, and the next gets another', async () => {
    const pid = await backend();
    const waiting = query(() => sql`select pg_sleep(${30}::int)`.execute(reads));
    const failed = expect(waiting).rejects.toMatchObject({ code: 'unavailable' });
    await terminate(pid);
    await failed;
    const next = await until(() => backend().catch(() => null));
    expect(next).not.toBe(pid);
  });

  test('nothing can be written, and nobody can begin a transaction', async () => {
    await expect(sql`delete from catalog.nodes`.execute(reads)).rejects.toMatchObject({ code: '25006' });
    await expect(reads.transaction().execute(async () => undefined)).rejects.toThrow('no transactions');
  });
});

test('a database whose own disk fails is unavailable, as one that is down', () => {
  const failure = new pg.DatabaseError('could not open file "base/5/PG_VERSION": Input/output error', 0, 'error');
  failure.code = '58030';
  expect(toDatabaseError(failure)).toMatchObject({ code: 'unavailable' });
});
