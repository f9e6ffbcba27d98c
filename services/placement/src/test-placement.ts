import { openDatabase } from '@stowage/common/database/database';
import { WakeListener } from '@stowage/common/jobs/wake-listener';
import { LocalConnections } from '@stowage/common/rpc/connections';
import type { Client } from '@stowage/common/rpc/contract';
import { commonSettings } from '@stowage/common/runtime/common-settings';
import { Lifecycle } from '@stowage/common/runtime/lifecycle';
import { createLogger } from '@stowage/common/runtime/logger';
import { readSettings } from '@stowage/common/runtime/settings';
import { JobService } from '@stowage/proto/stowage/placement/v1/job';
import { PolicyService } from '@stowage/proto/stowage/placement/v1/policy';
import { startWhenPossible } from '@stowage/common/runtime/start-when-possible';
import { startTestDatabase } from '@stowage/tests/support/test-database';
import pg from 'pg';
import { serviceProcess } from './service.ts';
import { placementSettings } from './settings.ts';
import { fakeBackends, fakeBlobs, fakeContent, farId, localId } from './test-neighbours.ts';
import { TestStorage } from './test-storage.ts';

/** The service on a database of its own, with the neighbours of test-neighbours.ts. */
export interface TestPlacement {
  /** The superuser. */
  pool: pg.Pool;
  policies: Client<typeof PolicyService>;
  jobs: Client<typeof JobService>;
  close(): Promise<void>;
}

export async function startTestPlacement(): Promise<TestPlacement> {
  const logger = createLogger('test', 'silent');
  const server = await startTestDatabase();
  const pool = new pg.Pool({ connectionString: server.url, max: 2 });
  pool.on('error', () => undefined);
  await pool.query(
    `insert into registry.backends (id, name, type, is_default, config)
     values ($1, 'local', 'local_directory', true, '{}'), ($2, 'far', 's3', false, '{}')`,
    [localId, farId],
  );
  const database = openDatabase({ url: server.url, service: 'placement', connections: 10, logger });
  const wake = new WakeListener(server.url, logger);
  wake.start();
  const { common, own } = readSettings(
    { common: commonSettings, own: placementSettings },
    { STOWAGE_JOB_INTERVAL: '20d', STOWAGE_CHECK_INTERVAL: '20d', STOWAGE_RECONCILE_INTERVAL: '20d' },
  );
  const connections = new LocalConnections(logger);
  const lifecycle = new Lifecycle(logger);
  const service = serviceProcess.create(own, { common, logger, database, connections, wake, lifecycle });
  connections.add('placement', service.endpoints, []);
  connections.add('backend-registry', [fakeBackends(), fakeBlobs()], []);
  connections.add('catalog', [fakeContent(), new TestStorage().replicaEndpoint()], []);
  await startWhenPossible(service, lifecycle, logger);
  await untilScheduled(pool);
  return {
    pool,
    policies: connections.client(PolicyService),
    jobs: connections.client(JobService),
    close: async () => {
      await service.stop();
      await wake.close();
      await database.close();
      await pool.end();
      await server.close();
    },
  };
}

/** What the schedules queue at the start would else come in the middle of a test. */
async function untilScheduled(pool: pg.Pool): Promise<void> {
  const kinds = ['prune_history', 'scrub', 'full_reconcile', 'health_check'];
  for (;;) {
    const { rows } = await pool.query<{ kind: string; count: number }>(
      `select kind, count(*)::int as count from jobs.jobs where dedupe_key like 'schedule%' group by kind`,
    );
    const queued = new Map(rows.map(({ kind, count }) => [kind, count]));
    if (kinds.every((kind) => (queued.get(kind) ?? 0) >= (kind === 'health_check' ? 2 : 1))) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
