import { appendStaged, appendUpload as appendUploadOperation, uploadEndpoint } from '@stowage/common/bytes/operations';
import { queryBuilder } from '@stowage/common/database/database';
import { Schedule } from '@stowage/common/jobs/schedule';
import { Worker } from '@stowage/common/jobs/worker';
import { endpoint } from '@stowage/common/rpc/contract';
import type { ServiceProcess } from '@stowage/common/runtime/run-service';
import type { Service, ServiceDependencies } from '@stowage/common/runtime/service';
import { BlobService } from '@stowage/proto/stowage/backend_registry/v1/blob';
import { ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import { PolicyService } from '@stowage/proto/stowage/placement/v1/policy';
import { UploadService } from '@stowage/proto/stowage/upload/v1/upload';
import { appendUpload, RunningAppends } from './append-upload.ts';
import { createUpload } from './create-upload.ts';
import { expireUploads } from './expire-uploads.ts';
import { finalizeUpload } from './finalize-upload.ts';
import { Leases } from './leases.ts';
import { uploadSettings } from './settings.ts';
import type { UploadSettings } from './settings.ts';
import type { Tables } from './tables.ts';
import { terminateUpload } from './terminate-upload.ts';
import { findUpload, offsetOf, toUpload } from './uploads.ts';

/** Unfinished uploads: leases, states, finalize, expiry. */
export const serviceProcess: ServiceProcess<typeof uploadSettings> = { name: 'upload', settings: uploadSettings, create };

function create(settings: UploadSettings, dependencies: ServiceDependencies): Service {
  const { common, connections, database, logger, wake } = dependencies;
  const db = queryBuilder<Tables>(database);
  const parts = {
    db,
    settings,
    logger,
    leases: new Leases(db, settings, wake.notifications, logger),
    running: new RunningAppends(settings.appendsPerUser),
    content: connections.client(ContentService),
    policies: connections.client(PolicyService),
    blobs: connections.client(BlobService),
    appendStaged: connections.uploader(appendStaged),
  };
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
        createUpload: async (request, context) => ({ upload: toUpload(await createUpload(parts, request, context), 0) }),
        getUpload: async ({ id }, context) => {
          const row = await findUpload(db, id, context);
          return { upload: toUpload(row, await offsetOf(row, parts.blobs, context)) };
        },
        terminateUpload: async ({ id }, context) => {
          await terminateUpload(parts, id, context);
          return {};
        },
        finalizeUpload: ({ id, target }, context) => finalizeUpload(parts, { id, target }, context),
      }),
    ],
    byteEndpoints: [uploadEndpoint(appendUploadOperation, (request, body, context) => appendUpload(parts, request, body, context))],
    start: async () => {
      worker.start();
      schedule.start();
    },
    stop: async () => {
      schedule.stop();
      await worker.stop();
    },
  };
}
