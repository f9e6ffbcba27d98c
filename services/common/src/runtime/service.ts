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

/** How something does that a service can be without for a while. */
export interface DependencyState {
  name: string;
  works: boolean;
  /** A sentence where it does not work, else empty. */
  detail: string;
}

/** A service, built and not yet started. */
export interface Service {
  name: ServiceName;
  endpoints: readonly Endpoint[];
  byteEndpoints: readonly ByteEndpoint[];
  /** How what it depends on does, beside the database and other services; within a second. */
  dependencies?(): Promise<DependencyState[]>;
  /**
   * Takes up work of its own: listeners, workers, first-run set-up. Called again after it threw `unavailable` or a
   * MendableError.
   */
  start(): Promise<void>;
  /** Ends that work, as jobs, and gives its leases back; requests still come. */
  drain?(): Promise<void>;
  /** Ends the rest, once no requests come any more. */
  stop(): Promise<void>;
}
