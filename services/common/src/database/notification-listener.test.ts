import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import { startTestDatabase } from '@stowage/tests/support/test-database';
import type { TestDatabase } from '@stowage/tests/support/test-database';
import pg from 'pg';
import { createLogger } from '../runtime/logger.ts';
import { NotificationListener } from './notification-listener.ts';

const logger = createLogger('test', 'silent');
let server: TestDatabase;
let pool: pg.Pool;
let listener: NotificationListener;
/** Other systems on the same server have such a connection as well. */
const ours = `from pg_stat_activity where application_name = 'stowage-notifications' and datname = current_database()`;
beforeAll(async () => {
  server = await startTestDatabase();
  pool = new pg.Pool({ connectionString: server.url, max: 1 });
  pool.on('error', () => undefined);
});
afterAll(async () => {
  await pool.end();
  await server.close();
});

afterEach(() => listener.close());

async function until(check: () => boolean): Promise<void> {
  const limit = Date.now() + 20_000;
  while (!check()) {
    if (Date.now() > limit) throw new Error('it did not happen in time');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

async function notify(channel: string, payload: string): Promise<void> {
  await pool.query('select pg_notify($1, $2)', [channel, payload]);
}

test('hears its channels over one connection, also after that was cut, and says that something may have been missed', async () => {
  listener = new NotificationListener(server.url, logger);
  const [first, second]: (string | null)[][] = [[], []];
  if (!first || !second) throw new Error('unreachable');
  listener.subscribe('first', (payload) => first.push(payload));
  listener.start();
  await until(() => first.length === 1);
  listener.subscribe('second', (payload) => second.push(payload));
  await until(() => second.length === 1);
  await notify('first', 'a');
  await notify('second', 'b');
  await until(() => first.length === 2 && second.length === 2);
  const { rowCount } = await pool.query(`select pg_terminate_backend(pid) ${ours}`);
  expect(rowCount).toBe(1);
  await until(() => first.length === 3 && second.length === 3);
  await notify('first', 'c');
  listener.unsubscribe('second');
  await notify('second', 'd');
  await until(() => first.length === 4);
  expect([first, second]).toEqual([
    [null, 'a', null, 'c'],
    [null, 'b', null],
  ]);
  await listener.close();
  const { rows } = await pool.query(`select ${ours}`);
  expect(rows.length).toBeLessThanOrEqual(1);
});

test('a database that is away is tried again without an error, and closing ends that', async () => {
  listener = new NotificationListener('postgres://nobody@127.0.0.1:1/none', logger);
  listener.subscribe('first', () => undefined);
  listener.start();
  await listener.close();
});
