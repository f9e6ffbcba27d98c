import {
  downloadEndpoint,
  planRestore as planRestoreOperation,
  readExport as readExportOperation,
  uploadEndpoint,
  validateDocument,
} from '@stowage/common/bytes/operations';
import { endpoint } from '@stowage/common/rpc/contract';
import type { ServiceProcess } from '@stowage/common/runtime/run-service';
import type { Service, ServiceDependencies } from '@stowage/common/runtime/service';
import { BackendService } from '@stowage/proto/stowage/backend_registry/v1/backend';
import { DocumentService } from '@stowage/proto/stowage/export/v1/document';
import { documentSchema } from './document/document-schema.ts';
import { validateBody } from './document/validate-body.ts';
import { readExport } from './kept/read-export.ts';
import { Housekeeping } from './housekeeping.ts';
import { planRestore } from './plan/make-plan.ts';
import { exportEndpoints } from './rpc.ts';
import { exportSettings } from './settings.ts';
import type { ExportSettings } from './settings.ts';

/** Metadata out and in. */
export const serviceProcess: ServiceProcess<typeof exportSettings> = {
  name: 'export',
  settings: exportSettings,
  create: createExport,
};

function createExport(
  { documentLimit: limit, graceMs }: ExportSettings,
  { connections, database, logger }: ServiceDependencies,
): Service {
  const { bulk } = database;
  const housekeeping = new Housekeeping(bulk, logger);
  const plan = { bulk, backends: connections.client(BackendService), limit, graceMs };
  return {
    name: 'export',
    endpoints: [
      endpoint(DocumentService, { getSchema: async () => ({ schema: JSON.stringify(documentSchema) }) }),
      ...exportEndpoints(database),
    ],
    byteEndpoints: [
      downloadEndpoint(readExportOperation, (request, context) => readExport(database, request, context.signal)),
      uploadEndpoint(validateDocument, ({ gzip }, body, { signal }) =>
        validateBody(bulk, body, { gzip, limit, signal }),
      ),
      uploadEndpoint(planRestoreOperation, (request, body, context) => planRestore(plan, request, body, context)),
    ],
    start: async () => housekeeping.start(),
    stop: () => housekeeping.stop(),
  };
}
