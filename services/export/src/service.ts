import { downloadEndpoint, readExport } from '@stowage/common/bytes/operations';
import type { ServiceProcess } from '@stowage/common/runtime/run-service';
import type { Service } from '@stowage/common/runtime/service';
import { exportDocument } from './snapshot/export-document.ts';

const settings = {};

/** Metadata out and in. */
export const serviceProcess: ServiceProcess<typeof settings> = {
  name: 'export',
  settings,
  create: (_settings, { database }): Service => ({
    name: 'export',
    endpoints: [],
    byteEndpoints: [downloadEndpoint(readExport, async () => exportDocument(database.bulk))],
    start: async () => undefined,
    stop: async () => undefined,
  }),
};
