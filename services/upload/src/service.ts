import {
  appendStaged,
  appendUpload as appendUploadOperation,
  createUploadWithBody as createUploadWithBodyOperation,
  uploadEndpoint,
} from '@stowage/common/bytes/operations';
import { queryBuilder, readBuilder } from '@stowage/common/database/database';
import { Schedule } from '@stowage/common/jobs/schedule';
import { Worker } from '@stowage/common/jobs/worker';
import { endpoint } from '@stowage/common/rpc/contract';
import type { ServiceProcess } from '@stowage/common/runtime/run-service';
import type { Service, ServiceDependencies } from '@stowage/common/runtime/service';
import { BlobService } from '@stowage/proto/stowage/backend_registry/v1/blob';
import { ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import { TreeService } from '@stowage/proto/stowage/catalog/v1/tree';
import { PolicyService } from '@stowage/proto/stowage/placement/v1/policy';
import { UploadService } from '@stowage/proto/stowage/upload/v1/upload';
import { LRUCache } from 'lru-cache';
import { AppendCounter } from './append-counter.ts';
import { appendUpload } from './append-upload.ts';
import { createUpload, createUploadWithBody } from './create-upload.ts';
import { expireUploads } from './expire-uploads.ts';
import { finalizeUpload } from './finalize-upload.ts';
import { getUpload } from './get-upload.ts';
import { UploadLeases } from './leases.ts';
import type { UploadParts } from './parts.ts';
import { uploadSettings } from './settings.ts';
import type { UploadSettings } from './settings.ts';
import { SyncCopies } from './sync-copies.ts';
import { terminateUpload } from './terminate-upload.ts';

/** How long the last writers may take to end, once nobody sends them bytes any more. */
const appendsEndMs = 1_000;

const rememberedUploads = 10_000;

/** Unfinished uploads: who may write to them, when they become files, and when they expire. */
export const serviceProcess: ServiceProcess<typeof uploadSettings> = {
  name: 'upload',
  settings: uploadSettings,
  create: createUploadService,
};

function createUploadService(settings: UploadSettings, dependencies: ServiceDependencies): Service {
  const { common, logger, wake } = dependencies;
  const parts = assemble(settings, dependencies);
  const { db, leases } = parts;
  const worker = new Worker({
    db,
    handlers: { expire_uploads: expireUploads(parts) },
    concurrency: common.jobConcurrency,
    leaseMs: common.jobLeaseMs,
    wake,
    logger,
  });
  const schedule = new Schedule(db, 'expire_uploads', common.jobIntervalMs, logger);
  return {
    name: 'upload',
    endpoints: [
      endpoint(UploadService, {
        createUpload: (request, context) => createUpload(parts, request, context),
        getUpload: (request, context) => getUpload(parts, request, context),
        terminateUpload: (request, context) => terminateUpload(parts, request, context),
        finalizeUpload: (request, context) => finalizeUpload(parts, request, context),
      }),
    ],
    byteEndpoints: [
      uploadEndpoint(appendUploadOperation, (request, body, context) => appendUpload(parts, request, body, context)),
      uploadEndpoint(createUploadWithBodyOperation, (request, body, context) =>
        createUploadWithBody(parts, request, body, context),
      ),
    ],
    async start() {
      leases.start();
      worker.start();
      schedule.start();
    },
    async drain() {
      schedule.stop();
      await worker.stop();
    },
    async stop() {
      parts.copies.stop();
      // Whoever was cut off a moment ago still gives back a lease, which would keep the upload locked after a restart.
      await parts.appends.settled(appendsEndMs);
      leases.stop();
    },
  };
}

function assemble(settings: UploadSettings, dependencies: ServiceDependencies): UploadParts {
  const { connections, database, logger, wake } = dependencies;
  const db = queryBuilder<unknown>(database);
  const { leaseWaitMs: waitMs, leaseMs } = settings;
  const blobs = connections.client(BlobService);
  const policies = connections.client(PolicyService);
  return {
    db,
    reads: readBuilder(database),
    settings,
    logger,
    leases: new UploadLeases({ db, notifications: wake.notifications, waitMs, leaseMs, logger }),
    appends: new AppendCounter(settings.appendsPerUser),
    complete: new LRUCache({ max: rememberedUploads }),
    tree: connections.client(TreeService),
    content: connections.client(ContentService),
    blobs,
    policies,
    copies: new SyncCopies({ blobs, policies, logger }),
    appendStaged: connections.uploader(appendStaged),
  };
}
