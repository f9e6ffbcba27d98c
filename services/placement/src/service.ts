import { queryBuilder, readBuilder } from '@stowage/common/database/database';
import { startRelay } from '@stowage/common/events/start-relay';
import type { RunningRelay } from '@stowage/common/events/start-relay';
import { Schedule } from '@stowage/common/jobs/schedule';
import { Worker } from '@stowage/common/jobs/worker';
import type { ServiceProcess } from '@stowage/common/runtime/run-service';
import type { Service, ServiceDependencies } from '@stowage/common/runtime/service';
import { withinWait } from '@stowage/common/within-wait';
import { BackendService } from '@stowage/proto/stowage/backend_registry/v1/backend';
import { BlobService } from '@stowage/proto/stowage/backend_registry/v1/blob';
import { StoredService } from '@stowage/proto/stowage/backend_registry/v1/stored';
import { ComparisonService } from '@stowage/proto/stowage/catalog/v1/comparison';
import { ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import { ReplicaService } from '@stowage/proto/stowage/catalog/v1/replica';
import { removeBlob, verifyBlob } from './blob-jobs.ts';
import { readTimeout } from './deadlines.ts';
import { scheduledReconcile } from './enqueue.ts';
import { keepMakingFirstPolicy } from './first-policy.ts';
import { healthCheck, scheduledHealthChecks } from './health-checks.ts';
import { pruneHistory } from './prune-history.ts';
import { fullReconcile } from './reconcile/full-reconcile.ts';
import { placeBlob } from './reconcile/place-blob.ts';
import { placementEndpoints } from './rpc.ts';
import { scrub } from './scrub.ts';
import { natsAccess, placementSettings } from './settings.ts';
import type { PlacementSettings } from './settings.ts';
import { scheduledSweeps, sweep, sweepIntervalMs } from './sweep.ts';
import type { Tables } from './tables.ts';

/** How long the start waits for backend-registry, which may be starting too. */
const firstPolicyWaitMs = 5_000;

/** How lately the copies that stay must have been read whole when a surplus one is removed. */
const verificationFreshMs = 3_600_000;

/** Where content should lie, and the jobs that make it so. */
export const serviceProcess: ServiceProcess<typeof placementSettings> = {
  name: 'placement',
  settings: placementSettings,
  create: createPlacement,
};

function createPlacement(settings: PlacementSettings, dependencies: ServiceDependencies): Service {
  const { common, connections, database, logger, wake } = dependencies;
  const nats = natsAccess(settings);
  const db = queryBuilder<Tables>(database);
  const backends = connections.client(BackendService);
  const services = {
    content: connections.client(ContentService),
    blobs: connections.client(BlobService),
    replicas: connections.client(ReplicaService),
    readTimeoutMs: readTimeout(settings.reconcileBandwidth),
  };
  const limits = { outageGraceMs: settings.outageGraceMs, freshMs: verificationFreshMs };
  const sides = { stored: connections.client(StoredService), comparison: connections.client(ComparisonService) };
  const compare = { sides, graceMs: settings.graceMs };
  const reconcile = { db, services, limits, atOnce: settings.reconcileConcurrency, compare };
  const worker = new Worker({
    db,
    handlers: {
      health_check: healthCheck(backends),
      remove_blob: removeBlob(db, services),
      verify_blob: verifyBlob(db, services),
      place_blob: placeBlob(reconcile),
      full_reconcile: fullReconcile(reconcile),
      scrub: scrub(db, services.replicas, settings.scrubAfterMs),
      sweep: sweep(backends),
      prune_history: pruneHistory(db, settings),
    },
    concurrency: common.jobConcurrency,
    leaseMs: common.jobLeaseMs,
    wake,
    logger,
  });
  const schedules = [
    new Schedule(db, 'prune_history', common.jobIntervalMs, logger),
    new Schedule(db, 'scrub', common.jobIntervalMs, logger),
    new Schedule(db, scheduledReconcile, settings.reconcileIntervalMs, logger),
    new Schedule(db, scheduledHealthChecks, settings.checkIntervalMs, logger),
    new Schedule(db, scheduledSweeps, sweepIntervalMs, logger),
  ];
  const stopping = new AbortController();
  const firstPolicy = { db, backends, logger };
  let waiting: Promise<void> = Promise.resolve();
  let relay: RunningRelay | undefined;
  return {
    name: 'placement',
    endpoints: placementEndpoints({ db, reads: readBuilder(database), replicas: services.replicas, limits }),
    byteEndpoints: [],
    dependencies: async () => (relay ? [await relay.state()] : []),
    async start() {
      // At the first start uploads need the policy: ready means that they work. Without backend-registry it comes later.
      const making = keepMakingFirstPolicy(firstPolicy, stopping.signal);
      if (
        (await withinWait(
          making.then(() => true),
          firstPolicyWaitMs,
        )) === null
      )
        waiting = making;
      relay = await startRelay(db, nats, logger);
      worker.start();
      for (const schedule of schedules) schedule.start();
    },
    async stop() {
      stopping.abort();
      for (const schedule of schedules) schedule.stop();
      await worker.stop();
      await waiting;
      await relay?.stop();
    },
  };
}
