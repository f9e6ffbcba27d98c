import { queryBuilder, readBuilder } from '@stowage/common/database/database';
import { startRelay } from '@stowage/common/events/start-relay';
import type { RunningRelay } from '@stowage/common/events/start-relay';
import { Schedule } from '@stowage/common/jobs/schedule';
import { Worker } from '@stowage/common/jobs/worker';
import type { ServiceProcess } from '@stowage/common/runtime/run-service';
import type { Service, ServiceDependencies } from '@stowage/common/runtime/service';
import type { Kysely } from 'kysely';
import { BackendService } from '@stowage/proto/stowage/backend_registry/v1/backend';
import { BlobService } from '@stowage/proto/stowage/backend_registry/v1/blob';
import { StoredService } from '@stowage/proto/stowage/backend_registry/v1/stored';
import { ComparisonService } from '@stowage/proto/stowage/catalog/v1/comparison';
import { ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import { ReplicaService } from '@stowage/proto/stowage/catalog/v1/replica';
import { BackendSlots } from './backend-slots.ts';
import { removeBlob, verifyBlob } from './blob-jobs.ts';
import { readTimeout } from './deadlines.ts';
import { scheduledReconcile } from './enqueue.ts';
import { keepMakingFirstPolicy, makeFirstPolicy } from './first-policy.ts';
import { healthCheck, scheduledHealthChecks } from './health-checks.ts';
import { pruneHistory } from './prune-history.ts';
import { fullReconcile } from './reconcile/full-reconcile.ts';
import { placeBlob } from './reconcile/place-blob.ts';
import { observeBackends } from './observe-backends.ts';
import { observeJobs } from './observe-jobs.ts';
import { placementEndpoints } from './rpc.ts';
import { scrub } from './scrub.ts';
import type { PlanLimits } from './planner/facts.ts';
import { natsAccess, placementSettings } from './settings.ts';
import type { PlacementSettings } from './settings.ts';
import { scheduledSweeps, sweep, sweepIntervalMs } from './sweep.ts';
import type { Tables } from './tables.ts';

/** How lately the copies that stay must have been read whole when a surplus one is removed. */
const verificationFreshMs = 3_600_000;

const jobSlots = { waitMs: 2_000, slowMs: 2_000, slowMost: 1, restMs: 0 };

/** Where content should lie, and the jobs that make it so. */
export const serviceProcess: ServiceProcess<typeof placementSettings> = {
  name: 'placement',
  settings: placementSettings,
  create: createPlacement,
};

function createPlacement(settings: PlacementSettings, dependencies: ServiceDependencies): Service {
  const { common, connections, database, logger } = dependencies;
  const nats = natsAccess(settings);
  const db = queryBuilder<Tables>(database);
  const backends = connections.client(BackendService);
  const replicas = connections.client(ReplicaService);
  const limits = limitsOf(settings);
  const workers = workersOf(settings, dependencies, db);
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
  let observing: (() => void)[] = [];
  return {
    name: 'placement',
    endpoints: placementEndpoints({ db, reads: readBuilder(database), replicas, limits }),
    byteEndpoints: [],
    dependencies: async () => (relay ? [await relay.state()] : []),
    async start() {
      // Ready means that uploads work, and these need the policy.
      const isMade = await makeFirstPolicy(firstPolicy, stopping.signal);
      if (!isMade) waiting = keepMakingFirstPolicy(firstPolicy, stopping.signal);
      relay = await startRelay(db, nats, logger);
      observing = [observeJobs(db, logger), observeBackends(db, logger)];
      for (const worker of workers) worker.start();
      for (const schedule of schedules) schedule.start();
    },
    async drain() {
      stopping.abort();
      for (const end of observing) end();
      for (const schedule of schedules) schedule.stop();
      await Promise.all(workers.map((worker) => worker.stop()));
      await waiting;
    },
    async stop() {
      await relay?.stop();
    },
  };
}

function limitsOf({ outageGraceMs }: PlacementSettings): PlanLimits {
  return { outageGraceMs, freshMs: verificationFreshMs };
}

function workersOf(
  settings: PlacementSettings,
  { common, connections, logger, wake }: ServiceDependencies,
  db: Kysely<Tables>,
): Worker<Tables>[] {
  const services = {
    content: connections.client(ContentService),
    blobs: connections.client(BlobService),
    replicas: connections.client(ReplicaService),
    readTimeoutMs: readTimeout(settings.reconcileBandwidth),
  };
  const backends = connections.client(BackendService);
  const sides = { stored: connections.client(StoredService), comparison: connections.client(ComparisonService) };
  const compare = { sides, graceMs: settings.graceMs };
  // Where bandwidth is limited work waits for its turn: that it takes long tells nothing of its backend.
  const judgesSlow = settings.reconcileBandwidth === null;
  const reconcile = {
    db,
    services,
    limits: limitsOf(settings),
    atOnce: settings.reconcileConcurrency,
    compare,
    judgesSlow,
  };
  const slowMs = judgesSlow ? jobSlots.slowMs : Number.POSITIVE_INFINITY;
  const slots = new BackendSlots({ ...jobSlots, slowMs, most: common.jobConcurrency });
  return [
    // Nothing else holds it up: that a backend is away has to be noticed.
    new Worker({
      db,
      handlers: { health_check: healthCheck(backends) },
      concurrency: common.jobConcurrency,
      leaseMs: common.jobLeaseMs,
      wake,
      logger,
    }),
    new Worker({
      db,
      handlers: {
        full_reconcile: fullReconcile(reconcile),
        scrub: scrub(db, services.replicas, settings.scrubAfterMs),
        sweep: sweep(backends),
        prune_history: pruneHistory(db, settings),
      },
      concurrency: common.jobConcurrency,
      leaseMs: common.jobLeaseMs,
      wake,
      logger,
    }),
    // What moves content may be held up by a backend for long: nothing else waits for that, and one has half of it at most.
    new Worker({
      db,
      handlers: {
        remove_blob: removeBlob(db, services, slots),
        verify_blob: verifyBlob(db, services, slots),
        place_blob: placeBlob(reconcile, slots),
      },
      concurrency: 2 * common.jobConcurrency,
      leaseMs: common.jobLeaseMs,
      wake,
      logger,
    }),
  ];
}
