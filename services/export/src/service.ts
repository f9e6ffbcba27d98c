import {
  downloadEndpoint,
  importPlan as importPlanOperation,
  planRestore as planRestoreOperation,
  readExport,
  uploadEndpoint,
  validateDocument,
} from '@stowage/common/bytes/operations';
import { queryBuilder } from '@stowage/common/database/database';
import { Schedule } from '@stowage/common/jobs/schedule';
import { Worker } from '@stowage/common/jobs/worker';
import { endpoint } from '@stowage/common/rpc/contract';
import type { ServiceProcess } from '@stowage/common/runtime/run-service';
import type { Service, ServiceDependencies } from '@stowage/common/runtime/service';
import { BackendService } from '@stowage/proto/stowage/backend_registry/v1/backend';
import { DocumentService } from '@stowage/proto/stowage/export/v1/document';
import { documentSchema } from './document/document-schema.ts';
import { validateBody } from './document/validate-body.ts';
import { Housekeeping } from './housekeeping.ts';
import { importPlan } from './import/import-plan.ts';
import { Turns } from './import/turns.ts';
import { dropBeforeImport, keepBeforeImport, markKept } from './kept/keep-before-import.ts';
import { keptStorage } from './kept/kept-storage.ts';
import { metadataExport } from './kept/metadata-export.ts';
import { ExportReader } from './kept/read-export.ts';
import { planRestore } from './plan/make-plan.ts';
import { exportEndpoints } from './rpc.ts';
import { exportSettings } from './settings.ts';
import type { ExportSettings } from './settings.ts';

/** How long an import waits for another one. */
const importTurnMs = 30_000;

/** Metadata out and in. */
export const serviceProcess: ServiceProcess<typeof exportSettings> = {
  name: 'export',
  settings: exportSettings,
  create: createExport,
};

function createExport(settings: ExportSettings, dependencies: ServiceDependencies): Service {
  const { common, connections, database, logger, wake } = dependencies;
  const { bulk } = database;
  const { documentLimit: limit, graceMs, exportIntervalMs, exportBackend: backend, exportKeep: keep } = settings;
  const db = queryBuilder<unknown>(database);
  const storage = keptStorage(connections);
  const reader = new ExportReader(bulk, storage);
  const housekeeping = new Housekeeping(bulk, logger);
  const plan = { bulk, backends: connections.client(BackendService), limit, graceMs };
  const before = {
    write: (signal: AbortSignal) => keepBeforeImport(bulk, signal),
    keep: markKept,
    drop: (exportId: string) => dropBeforeImport(bulk, exportId),
  };
  const stopping = new AbortController();
  const imports = { bulk, turns: new Turns(importTurnMs), limit, before, stopping: stopping.signal };
  const worker = new Worker({
    db,
    handlers: { metadata_export: metadataExport({ bulk, storage, backend, keep, logger }) },
    concurrency: 1,
    leaseMs: common.jobLeaseMs,
    wake,
    logger,
  });
  const schedule = exportIntervalMs > 0 ? new Schedule(db, 'metadata_export', exportIntervalMs, logger) : null;
  return {
    name: 'export',
    endpoints: [
      endpoint(DocumentService, { getSchema: async () => ({ schema: JSON.stringify(documentSchema) }) }),
      ...exportEndpoints(database),
    ],
    byteEndpoints: [
      downloadEndpoint(readExport, (request, context) => reader.read(request, context)),
      uploadEndpoint(validateDocument, ({ gzip }, body, { signal }) =>
        validateBody(bulk, body, { gzip, limit, signal }),
      ),
      uploadEndpoint(planRestoreOperation, (request, body, context) => planRestore(plan, request, body, context)),
      uploadEndpoint(importPlanOperation, (request, body, context) => importPlan(imports, request, body, context)),
    ],
    async start() {
      worker.start();
      schedule?.start();
      housekeeping.start();
    },
    async drain() {
      schedule?.stop();
      await Promise.all([worker.stop(), housekeeping.stop()]);
    },
    async stop() {
      stopping.abort();
    },
  };
}
