import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { startTestDatabase } from '@stowage/tests/support/test-database';
import type { TestDatabase } from '@stowage/tests/support/test-database';
import { Kysely, PostgresDialect } from 'kysely';
import { Migrator } from 'kysely/migration';
import pg from 'pg';
import { newId } from '../ids.ts';
import { migrate, migrations } from './migrate.ts';

const before = '0009-login-attempts';
let server: TestDatabase;
let url: string;
let pool: pg.Pool;
let admin: pg.Client;
let dropDatabase: () => Promise<unknown>;

/** A database of the version before. */
beforeAll(async () => {
  server = await startTestDatabase();
  const name = `migration_${Date.now()}`;
  admin = new pg.Client({ connectionString: server.url });
  await admin.connect();
  await admin.query(`create database ${name}`);
  dropDatabase = () => admin.query(`drop database ${name} with (force)`);
  url = Object.assign(new URL(server.url), { pathname: `/${name}` }).href;
  pool = new pg.Pool({ connectionString: url, max: 2 });
  pool.on('error', () => undefined);
  const old = new pg.Pool({ connectionString: url, max: 2 });
  const db = new Kysely<unknown>({ dialect: new PostgresDialect({ pool: old }) });
  const provider = { getMigrations: async () => migrations };
  const { error } = await new Migrator({ db, provider }).migrateTo(before);
  await db.destroy();
  if (error !== undefined) throw error;
});

afterAll(async () => {
  await pool.end();
  await dropDatabase();
  await admin.end();
  await server.close();
});

test('events of before wait in the order of their ids, and the version before still writes them', async () => {
  const ids = Array.from({ length: 20 }, () => newId());
  const write = (id: string): Promise<unknown> =>
    pool.query(`insert into jobs.outbox (id, subject, data, traceparent) values ($1, 's', '{}', null)`, [id]);
  for (const id of [...ids].reverse()) await write(id);
  expect(await migrate(url)).toContain('0011-outbox-relay');
  const after = newId();
  await write(after);
  await pool.query(`insert into jobs.outbox (subject, data) values ('s', '{}')`);
  const { rows } = await pool.query<{ id: string; published_at: Date | null }>(
    'select id, published_at from jobs.outbox order by position',
  );
  expect(rows.map(({ id }) => id).slice(0, -1)).toEqual([...ids, after]);
  expect(rows.every((row) => row.published_at === null)).toBe(true);
  // Made by the database: the time, then version 7.
  const made = rows.at(-1)?.id ?? '';
  expect(made).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  const madeAt = Number.parseInt(made.replaceAll('-', '').slice(0, 12), 16);
  expect(Math.abs(madeAt - Date.now())).toBeLessThan(60_000);
});
