import { queryBuilder, readBuilder } from '@stowage/common/database/database';
import { Schedule } from '@stowage/common/jobs/schedule';
import { Worker } from '@stowage/common/jobs/worker';
import type { ServiceProcess } from '@stowage/common/runtime/run-service';
import { purgeRecycleBin } from './purge-job.ts';
import { catalogEndpoints } from './rpc.ts';
import { catalogSettings } from './settings.ts';

/** The tree of directories and files, the recycle bin, and blobs and replicas as facts. */
export const serviceProcess: ServiceProcess<typeof catalogSettings> = {
  name: 'catalog',
  settings: catalogSettings,
  create(keeping, { common, database, logger, wake }) {
    const db = queryBuilder<unknown>(database);
    const worker = new Worker({
      db,
      handlers: { purge_recycle_bin: purgeRecycleBin(db, keeping) },
      concurrency: common.jobConcurrency,
      leaseMs: common.jobLeaseMs,
      wake,
      logger,
    });
    const schedule = new Schedule(db, 'purge_recycle_bin', common.jobIntervalMs, logger);
    return {
      name: 'catalog',
      endpoints: catalogEndpoints(db, readBuilder(database), keeping),
      byteEndpoints: [],
      async start() {
        worker.start();
        schedule.start();
      },
      async drain() {
        schedule.stop();
        await worker.stop();
      },
      stop: async () => undefined,
    };
  },
};
