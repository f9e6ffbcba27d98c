import {
  downloadEndpoint,
  readExport as readExportOperation,
  uploadEndpoint,
  validateDocument,
} from '@stowage/common/bytes/operations';
import { endpoint } from '@stowage/common/rpc/contract';
import type { ServiceProcess } from '@stowage/common/runtime/run-service';
import type { Service } from '@stowage/common/runtime/service';
import { DocumentService } from '@stowage/proto/stowage/export/v1/document';
import { documentSchema } from './document/document-schema.ts';
import { validateBody } from './document/validate-body.ts';
import { Housekeeping } from './housekeeping.ts';
import { readExport } from './kept/read-export.ts';
import { exportEndpoints } from './rpc.ts';
import { exportSettings } from './settings.ts';

/** Metadata out and in. */
export const serviceProcess: ServiceProcess<typeof exportSettings> = {
  name: 'export',
  settings: exportSettings,
  create: ({ documentLimit: limit }, { database, logger }): Service => {
    const housekeeping = new Housekeeping(database.bulk, logger);
    return {
      name: 'export',
      endpoints: [
        endpoint(DocumentService, { getSchema: async () => ({ schema: JSON.stringify(documentSchema) }) }),
        ...exportEndpoints(database),
      ],
      byteEndpoints: [
        downloadEndpoint(readExportOperation, (request, context) => readExport(database, request, context.signal)),
        uploadEndpoint(validateDocument, ({ gzip }, body, { signal }) =>
          validateBody(database.bulk, body, { gzip, limit, signal }),
        ),
      ],
      start: async () => housekeeping.start(),
      stop: () => housekeeping.stop(),
    };
  },
};
