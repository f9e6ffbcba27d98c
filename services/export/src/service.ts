import { downloadEndpoint, readExport as readExportOperation } from '@stowage/common/bytes/operations';
import { endpoint } from '@stowage/common/rpc/contract';
import type { ServiceProcess } from '@stowage/common/runtime/run-service';
import type { Service } from '@stowage/common/runtime/service';
import { DocumentService } from '@stowage/proto/stowage/export/v1/document';
import { documentSchema } from './document/document-schema.ts';
import { readExport } from './kept/read-export.ts';
import { exportEndpoints } from './rpc.ts';

const settings = {};

/** Metadata out and in. */
export const serviceProcess: ServiceProcess<typeof settings> = {
  name: 'export',
  settings,
  create: (_settings, { database }): Service => ({
    name: 'export',
    endpoints: [
      endpoint(DocumentService, { getSchema: async () => ({ schema: JSON.stringify(documentSchema) }) }),
      ...exportEndpoints(database),
    ],
    byteEndpoints: [
      downloadEndpoint(readExportOperation, (request, context) => readExport(database, request, context.signal)),
    ],
    start: async () => undefined,
    stop: async () => undefined,
  }),
};
