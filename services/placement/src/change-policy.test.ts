import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { openDatabase, queryBuilder, readBuilder } from '@stowage/common/database/database';
import type { Database } from '@stowage/common/database/database';
import { AppError } from '@stowage/common/errors';
import { newId } from '@stowage/common/ids';
import { WakeListener } from '@stowage/common/jobs/wake-listener';
import { Worker } from '@stowage/common/jobs/worker';
import { LocalConnections } from '@stowage/common/rpc/connections';
import { backgroundContext } from '@stowage/common/rpc/context';
import type { Client } from '@stowage/common/rpc/contract';
import { createLogger } from '@stowage/common/runtime/logger';
import { PolicyService } from '@stowage/proto/stowage/placement/v1/policy';
import { until } from '@stowage/tests/support/client';
import { startTestDatabase } from '@stowage/tests/support/test-database';
import type { TestDatabase } from '@stowage/tests/support/test-database';
import pg from 'pg';
import { fullReconcile } from './reconcile/full-reconcile.ts';
import { placementEndpoints } from './rpc.ts';
import type { Tables } from './tables.ts';
import { TestStorage } from './test-storage.ts';

const [localId, farId] = [newId(), newId()];
const limits = { outageGraceMs: 6 * 3_600_000, freshMs: 3_600_000 };
const logger = createLogger('test', 'silent');

let server: TestDatabase;
let pool: pg.Pool;
let database: Database;
let wake: WakeListener;
let worker: Worker<Tables>;
let policies: Client<typeof PolicyService>;

beforeAll(async () => {
  server = await startTestDatabase();
  pool = new pg.Pool({ connectionString: server.url, max: 3 });
  pool.on('error', () => undefined);
  await pool.query(
    `insert into registry.backends (id, name, type, config) values ($1, 'local', 'local_directory', '{}'), ($2, 'far', 's3', '{}')`,
    [localId, farId],
  );
  database = openDatabase({ url: server.url, service: 'placement', connections: 10, logger });
  wake = new WakeListener(server.url, logger);
  wake.start();
  const db = queryBuilder<Tables>(database);
  const services = new TestStorage().services();
  const connections = new LocalConnections(logger);
  const parts = { db, reads: readBuilder<Tables>(database), replicas: services.replicas, limits };
  connections.add('placement', placementEndpoints(parts), []);
  policies = connections.client(PolicyService);
  const handlers = { full_reconcile: fullReconcile({ db, services, limits, atOnce: 4 }) };
  worker = new Worker({ db, handlers, concurrency: 4, leaseMs: 30_000, wake, logger });
});
afterAll(async () => {
  await worker.stop();
  await wake.close();
  await database.close();
  await pool.end();
  await server.close();
});
beforeEach(async () => {
  await pool.query('truncate jobs.jobs, jobs.outbox, placement.policies cascade');
});

const as = () => backgroundContext(new AbortController().signal);

async function refusalOf(call: Promise<unknown>): Promise<AppError> {
  const error = await call.then(
    () => null,
    (thrown: unknown) => thrown,
  );
  if (error instanceof AppError) return error;
  throw new Error('the call was not refused');
}

describe('saving a policy', () => {
  const put = (fileClass: string, backendIds = [farId, localId]) =>
    policies.putPolicy({ fileClass, backendIds, replicas: 2 }, as());

  async function savedAndQueued(): Promise<[number, number]> {
    const { rows } = await pool.query<{ saved: string; queued: string }>(`
      select (select coalesce(sum(version), 0) from placement.policies where file_class like 'saved%') as saved,
        (select count(*) from jobs.jobs where kind = 'full_reconcile' and params->>'reason' = 'policy_saved') as queued`);
    return [Number(rows[0]?.saved), Number(rows[0]?.queued)];
  }

  test('that can not queue its reconcile is not saved, and the other way round', async () => {
    await pool.query(`
      create function refuse() returns trigger language plpgsql as 'begin raise exception ''no room''; end';
      create trigger refuse before insert on jobs.jobs for each row execute function refuse()`);
    await refusalOf(put('saved-a'));
    await pool.query('drop trigger refuse on jobs.jobs');
    expect(await savedAndQueued()).toEqual([0, 0]);
    await pool.query(
      'create trigger refuse before insert on placement.policy_backends for each row execute function refuse()',
    );
    await refusalOf(put('saved-a'));
    await pool.query('drop trigger refuse on placement.policy_backends');
    expect(await savedAndQueued()).toEqual([0, 0]);
    expect((await put('saved-a')).policy).toMatchObject({ backendIds: [farId, localId], replicas: 2, version: 1n });
    expect(await savedAndQueued()).toEqual([1, 1]);
  });

  test('many times at once queues one job each, and all of them come to an end', async () => {
    await Promise.all(Array.from({ length: 40 }, (_, n) => put(`saved-${n % 3}`)));
    expect(await savedAndQueued()).toEqual([40, 40]);
    worker.start();
    const left = `select 1 from jobs.jobs where kind = 'full_reconcile' and state <> 'succeeded' limit 1`;
    await until(async () => (await pool.query(left)).rows.length === 0);
    // Those that had to wait for their turn did not use up attempts.
    const { rows } = await pool.query(`select from jobs.jobs where kind = 'full_reconcile' and attempt > 1`);
    expect(rows).toEqual([]);
  });

  test('refuses a backend that is deleted at the same moment', async () => {
    const goneId = newId();
    await pool.query(`insert into registry.backends (id, name, type, config) values ($1, 'going', 's3', '{}')`, [
      goneId,
    ]);
    const client = await pool.connect();
    await client.query('begin');
    await client.query('delete from registry.backends where id = $1', [goneId]);
    const saving = refusalOf(put('saved-b', [localId, goneId]));
    const waits = `select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%policy_backends%'`;
    await until(async () => (await pool.query(waits)).rows.length > 0);
    await client.query('commit');
    client.release();
    expect(await saving).toMatchObject({ code: 'validation_failed' });
    expect((await refusalOf(policies.getPolicy({ fileClass: 'saved-b', exact: true }, as()))).code).toBe('not_found');
  });
});
