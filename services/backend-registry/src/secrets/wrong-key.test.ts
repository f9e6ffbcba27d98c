import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import pg from 'pg';
import { queryBuilder } from '@stowage/common/database/database';
import { inTransaction } from '@stowage/common/database/transaction';
import { newId } from '@stowage/common/ids';
import { backgroundContext } from '@stowage/common/rpc/context';
import { RemoteConnections } from '@stowage/common/rpc/remote-connections';
import { BackendService } from '@stowage/proto/stowage/backend_registry/v1/backend';
import { until } from '@stowage/tests/support/client';
import { ServicePods } from '@stowage/tests/support/image-command';
import { startTestDatabase } from '@stowage/tests/support/test-database';
import type { TestDatabase } from '@stowage/tests/support/test-database';
import type { Tables } from '../tables.ts';
import { keyFileIn } from './key-file.ts';
import { KeyRing, keyBytes } from './key-ring.ts';
import { writeSecrets } from './secret-table.ts';

const service = 'backend-registry';
const startLimitMs = 60_000;
const sealing = randomBytes(keyBytes);
let database: TestDatabase;
let dataDir: string;
let pods: ServicePods;

beforeAll(async () => {
  database = await startTestDatabase();
  const pool = new pg.Pool({ connectionString: database.url, max: 2 });
  const db = queryBuilder<Tables>({ pool });
  const id = newId();
  await db.insertInto('registry.backends').values({ id, name: id, type: 's3', config: {} }).execute();
  const ring = new KeyRing([{ id: 'one', key: sealing }]);
  await inTransaction(db, (trx) => writeSecrets(trx, ring, id, { secret_access_key: 'hush' }));
  await pool.end();
});
afterAll(() => database.close());
beforeEach(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), 'stowage-keys-'));
  pods = await ServicePods.plan({ STOWAGE_DATABASE_URL: database.url, STOWAGE_DATA_DIR: dataDir });
});
afterEach(async () => {
  expect(await pods.stop()).toEqual({ [service]: 0 });
  await rm(dataDir, { recursive: true });
});

const wrong = randomBytes(keyBytes).toString('base64');
test.each([
  ['a key that is not there', `two:${wrong}`, /sealed under "one", and that key is not there/],
  ['another key under its id', `one:${wrong}`, /The key "one" is not the one that secrets were sealed with/],
])('%s leaves the process alive, unready, and telling why', async (_, keys, why) => {
  const running = pods.start(service, { STOWAGE_SECRET_KEYS: keys });
  await until(async () => (await pods.readiness(service))?.state === 'blocked', startLimitMs);
  const detail = expect.stringMatching(why);
  expect(await pods.readiness(service)).toEqual({ status: 503, state: 'blocked', detail });
  expect(await pods.health(service)).toBe(200);
  expect(JSON.parse(running.output().trim().split('\n').at(-1) ?? '')).toMatchObject({
    level: 'error',
    problem: detail,
  });
  expect(running.output()).not.toContain(wrong);

  const connections = new RemoteConnections({ [service]: { rpc: pods.rpcAddress(service), bytes: null } });
  const call = connections
    .client(BackendService)
    .listBackends({ limit: 10 }, backgroundContext(AbortSignal.timeout(10_000)));
  await expect(call).rejects.toMatchObject({ code: 'unavailable' });
  await connections.close();
});

test('a key that is brought back to the data folder makes it ready', async () => {
  pods.start(service);
  await until(async () => (await pods.readiness(service))?.state === 'blocked', startLimitMs);
  await writeFile(keyFileIn(dataDir), `one:${sealing.toString('base64')}\n`);
  await until(async () => (await pods.readiness(service))?.status === 200, startLimitMs);
  expect((await pods.readiness(service))?.detail).toBeNull();
});
