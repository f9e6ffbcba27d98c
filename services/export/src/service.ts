import type { Service } from '@stowage/common/runtime/service';
import type { ServiceProcess } from '@stowage/common/runtime/run-service';

const settings = {};

/** Metadata out and in. Its room is kept: so far it answers its probes only. */
export const serviceProcess: ServiceProcess<typeof settings> = {
  name: 'export',
  settings,
  create: (): Service => ({
    name: 'export',
    endpoints: [],
    byteEndpoints: [],
    start: async () => undefined,
    stop: async () => undefined,
  }),
};
