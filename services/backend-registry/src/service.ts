import { queryBuilder, readBuilder } from '@stowage/common/database/database';
import type { ServiceProcess } from '@stowage/common/runtime/run-service';
import type { Service, ServiceDependencies } from '@stowage/common/runtime/service';
import { ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import { setUpDefaultBackend } from './default-backend.ts';
import { DigestCache } from './digest-cache.ts';
import { OpenBackends } from './open-backend.ts';
import { registryByteEndpoints, registryEndpoints } from './rpc.ts';
import { Seals } from './seal-blob.ts';
import { registrySettings } from './settings.ts';
import type { RegistrySettings } from './settings.ts';
import type { Tables } from './tables.ts';

/** The backends, and alone in touching storage. */
export const serviceProcess: ServiceProcess<typeof registrySettings> = {
  name: 'backend-registry',
  settings: registrySettings,
  create: createRegistry,
};

function createRegistry(settings: RegistrySettings, dependencies: ServiceDependencies): Service {
  const { common, connections, logger } = dependencies;
  const db = queryBuilder<Tables>(dependencies.database);
  const backends = new OpenBackends(db, logger);
  const digests = new DigestCache();
  const seals = new Seals({ backends, digests, logger });
  const parts = {
    db,
    reads: readBuilder<Tables>(dependencies.database),
    content: connections.client(ContentService),
    backends,
    digests,
    seals,
    reserveBytes: settings.localReserveBytes,
    logger,
  };
  return {
    name: 'backend-registry',
    endpoints: registryEndpoints(parts),
    byteEndpoints: registryByteEndpoints(parts),
    start: () => setUpDefaultBackend({ db, dataDir: settings.dataDir, backends, logger }),
    stop: () => seals.stop(common.drainMs),
  };
}
