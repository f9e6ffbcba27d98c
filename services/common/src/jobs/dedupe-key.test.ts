import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { until } from '@stowage/tests/support/client';
import { startTestDatabase } from '@stowage/tests/support/test-database';
import type { TestDatabase } from '@stowage/tests/support/test-database';
import { sql } from 'kysely';
import type { Kysely } from 'kysely';
import { openDatabase, queryBuilder } from '../database/database.ts';
import type { Database } from '../database/database.ts';
import { inTransaction } from '../database/transaction.ts';
import { newId } from '../ids.ts';
import { createLogger } from '../runtime/logger.ts';
import { enqueueJob } from './enqueue.ts';
import type { ClaimedJob } from './job.ts';
import { claimJobs, settleJob } from './queue.ts';
import type { Outcome } from './queue.ts';

const job = { kind: 'remove_blob', dedupeKey: 'k' } as const;

let server: TestDatabase;
let database: Database;
let db: Kysely<unknown>;

beforeAll(async () => {
  server = await startTestDatabase();
  const logger = createLogger('test', 'silent');
  database = openDatabase({ url: server.url, service: 'placement', connections: 4, logger });
  db = queryBuilder(database);
});
afterAll(async () => {
  await database.close();
  await server.close();
});
beforeEach(async () => {
  await sql`delete from jobs.jobs`.execute(db);
  await inTransaction(db, (trx) => enqueueJob(trx, job));
});

async function claimOne(): Promise<ClaimedJob> {
  const [claimed] = await claimJobs(db, [job.kind], 1, { holder: newId(), leaseMs: 60_000 });
  if (!claimed) throw new Error('nothing was claimed');
  return claimed;
}

test.each<Outcome>([
  { state: 'pending', code: 'x', detail: 'y', delayMs: 60_000 },
  { state: 'released', delayMs: 60_000 },
])('an equal job while one waits for its next attempt makes none (%j)', async (outcome) => {
  expect(await settleJob(db, await claimOne(), outcome)).toBe(true);
  expect(await inTransaction(db, (trx) => enqueueJob(trx, job))).toBeNull();
});

test('an equal job that is queued in the moment in which one goes back stays beside it', async () => {
  const running = await claimOne();
  const trx = await db.startTransaction().execute();
  await enqueueJob(trx, job);
  const settling = settleJob(db, running, { state: 'released', delayMs: 60_000 });
  await until(async () => {
    const { rows } = await sql`select from pg_locks where not granted`.execute(db);
    return rows.length > 0;
  });
  await trx.commit().execute();
  expect(await settling).toBe(true);
  expect((await sql`select from jobs.jobs where state = 'pending'`.execute(db)).rows).toHaveLength(2);
});
