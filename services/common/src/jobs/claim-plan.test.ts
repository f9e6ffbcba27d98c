import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { faultsOf, statementsOf } from '@stowage/tests/support/query-plans';
import { startTestDatabase } from '@stowage/tests/support/test-database';
import type { TestDatabase } from '@stowage/tests/support/test-database';
import pg from 'pg';
import { openDatabase, queryBuilder } from '../database/database.ts';
import type { Database } from '../database/database.ts';
import { newId } from '../ids.ts';
import { createLogger } from '../runtime/logger.ts';
import { claimJobs } from './queue.ts';

let server: TestDatabase;
let admin: pg.Pool;
let database: Database;

beforeAll(async () => {
  server = await startTestDatabase();
  admin = new pg.Pool({ connectionString: server.url, max: 1 });
  const logger = createLogger('test', 'silent');
  database = openDatabase({ url: server.url, service: 'placement', connections: 2, logger });
});
afterAll(async () => {
  await database.close();
  await admin.end();
  await server.close();
});

test('claiming finds the few that are due among many that are not, by index', async () => {
  const kinds = ['remove_blob', 'verify_blob', 'prune_history'];
  await admin.query(
    `insert into jobs.jobs (id, kind, run_after)
     select gen_random_uuid(), $1, now() + interval '1 second' * case when n % 2 = 0 then 86400 else -n end
     from generate_series(1, 40000) n`,
    [kinds[0]],
  );
  await admin.query('analyze jobs.jobs');
  const claim = () => claimJobs(queryBuilder(database), kinds, 4, { holder: newId(), leaseMs: 60_000 });
  expect(await claim()).toHaveLength(4);
  const statements = await statementsOf(claim);
  expect(statements).toHaveLength(1);
  const faults = await Promise.all(statements.map((statement) => faultsOf(admin, statement, ['jobs'])));
  expect(faults.flat()).toEqual([]);
});
