import type { ByteEndpoint } from '../bytes/operations.ts';
import type { Database } from '../database/database.ts';
import type { WakeListener } from '../jobs/wake-listener.ts';
import type { Connections, ServiceName } from '../rpc/connections.ts';
import type { Endpoint } from '../rpc/contract.ts';
import type { Lifecycle } from './lifecycle.ts';
import type { commonSettings } from './common-settings.ts';
import type { Logger } from './logger.ts';
import type { Values } from './settings.ts';

/** What every service is handed, in whichever process it runs. */
export interface ServiceDependencies {
  common: Values<typeof commonSettings>;
  logger: Logger;
  database: Database;
  connections: Connections;
  /** Wakes the workers of this process. */
  wake: WakeListener;
  lifecycle: Lifecycle;
}

/** A service, built and not yet started. */
export interface Service {
  name: ServiceName;
  endpoints: readonly Endpoint[];
  byteEndpoints: readonly ByteEndpoint[];
  /** Takes up work of its own: listeners, workers, first-run set-up. */
  start(): Promise<void>;
  /** Finishes what is under way and gives it all back. */
  stop(): Promise<void>;
}
