import path from 'node:path';
import { queryBuilder, readBuilder } from '@stowage/common/database/database';
import { unavailable } from '@stowage/common/errors';
import type { ServiceProcess } from '@stowage/common/runtime/run-service';
import type { Service, ServiceDependencies } from '@stowage/common/runtime/service';
import { ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import { Bandwidth } from './bandwidth.ts';
import { hearOfChanges } from './change-notice.ts';
import { LocalRoots } from './config/local-roots.ts';
import { setUpDefaultBackend } from './default-backend.ts';
import { DigestCache } from './digest-cache.ts';
import { EndpointGuard } from './network/endpoint-guard.ts';
import { OpenBackends } from './open-backend.ts';
import { registryByteEndpoints, registryEndpoints } from './rpc.ts';
import { Seals } from './seal-blob.ts';
import type { KeyRing } from './secrets/key-ring.ts';
import { openKeyRing } from './secrets/open-key-ring.ts';
import { registrySettings } from './settings.ts';
import type { RegistrySettings } from './settings.ts';
import { storeCallRecorder } from './store-metrics.ts';
import type { Tables } from './tables.ts';

/** How long seals may go on that nobody waits for any more. */
const sealsEndMs = 1_000;

/** The backends, and alone in touching storage. */
export const serviceProcess: ServiceProcess<typeof registrySettings> = {
  name: 'backend-registry',
  settings: registrySettings,
  create: createRegistry,
};

function createRegistry(settings: RegistrySettings, dependencies: ServiceDependencies): Service {
  const { connections, logger, wake } = dependencies;
  const { dataDir, secretKeys } = settings;
  const db = queryBuilder<Tables>(dependencies.database);
  let ring: KeyRing | null = null;
  const keys = (): KeyRing => {
    if (ring === null) throw unavailable('backend-registry is still starting.');
    return ring;
  };
  const roots = new LocalRoots([path.join(dataDir, 'backends'), ...settings.localRoots]);
  const guard = new EndpointGuard(settings.endpointDeny);
  const agents = guard.agents();
  const backends = new OpenBackends({ db, keys, stores: { roots, agents, record: storeCallRecorder() }, logger });
  const digests = new DigestCache();
  const seals = new Seals({ backends, digests, logger });
  const parts = {
    db,
    reads: readBuilder<Tables>(dependencies.database),
    content: connections.client(ContentService),
    backends,
    roots,
    guard,
    keys,
    digests,
    seals,
    reserveBytes: settings.localReserveBytes,
    bandwidth: new Bandwidth(settings.reconcileBandwidth),
    logger,
  };
  return {
    name: 'backend-registry',
    endpoints: registryEndpoints(parts),
    byteEndpoints: registryByteEndpoints(parts),
    async start() {
      ring = await openKeyRing({ db, dataDir, secretKeys });
      hearOfChanges(wake.notifications, backends);
      await setUpDefaultBackend({ db, dataDir, backends, kind: settings.defaultBackend, logger });
    },
    async stop() {
      await seals.stop(sealsEndMs);
      agents.http.destroy();
      agents.https.destroy();
    },
  };
}
