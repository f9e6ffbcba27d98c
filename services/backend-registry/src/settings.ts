import path from 'node:path';
import { byteSize, setting } from '@stowage/common/runtime/settings';
import type { Values } from '@stowage/common/runtime/settings';

/** The settings of backend-registry. */
export const registrySettings = {
  dataDir: setting('STOWAGE_DATA_DIR', 'The folder of all that is kept locally.', (text) => path.resolve(text), {
    fallback: './data',
  }),
  localReserveBytes: setting('STOWAGE_LOCAL_RESERVE', 'Bytes kept free on a local backend.', byteSize, {
    fallback: '64MiB',
  }),
};

export type RegistrySettings = Values<typeof registrySettings>;
