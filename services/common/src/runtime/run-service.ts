import { ByteServer } from '../bytes/byte-server.ts';
import { openDatabase } from '../database/database.ts';
import { WakeListener } from '../jobs/wake-listener.ts';
import type { ServiceName } from '../rpc/connections.ts';
import { RemoteConnections } from '../rpc/remote-connections.ts';
import type { Address } from '../rpc/remote-connections.ts';
import { GrpcServer } from '../rpc/grpc-server.ts';
import { systemEndpoint } from '../rpc/system-endpoint.ts';
import { TlsIdentity } from '../tls/identity.ts';
import { tlsFilesOf, tlsSettings } from '../tls/settings.ts';
import { addressSettings, commonSettings, databaseSettings, portSettings } from './common-settings.ts';
import { Lifecycle } from './lifecycle.ts';
import { createLogger } from './logger.ts';
import type { Logger } from './logger.ts';
import { ManagementServer } from './management-server.ts';
import { runProcess } from './run-process.ts';
import type { Service, ServiceDependencies } from './service.ts';
import { settingsOrExit } from './settings-or-exit.ts';
import { onceStarted, startWhenPossible, waitForSchema } from './start-when-possible.ts';
import type { Environment, Settings, Values } from './settings.ts';
import type { Telemetry } from './telemetry.ts';

const processSettings = {
  ...commonSettings,
  ...databaseSettings,
  ...addressSettings,
  ...portSettings,
  ...tlsSettings,
};
type ProcessValues = Values<typeof processSettings>;

/** What makes a process out of a service. */
export interface ServiceProcess<S extends Settings> {
  name: ServiceName;
  settings: S;
  create(settings: Values<S>, dependencies: ServiceDependencies): Service;
}

/**
 * Runs one service in this process: gRPC, byte and management ports, PostgreSQL, a clean stop on SIGTERM. Lives on,
 * unready, while what its start needs is away; ends with 1 only for a mistake in the settings or the program.
 */
export async function runService<S extends Settings>(
  service: ServiceProcess<S>,
  environment: Environment,
  telemetry: Telemetry,
): Promise<void> {
  const { process: settings, own } = settingsOrExit({ process: processSettings, own: service.settings }, environment);
  const logger = createLogger(service.name, settings.logLevel);
  const lifecycle = new Lifecycle(logger);
  const limits = { drainDelayMs: settings.drainDelayMs, limitMs: settings.drainMs + 2_000 };
  await runProcess(lifecycle, logger, limits, async () => {
    const tls = openIdentity(service.name, settings, logger);
    lifecycle.onStop('certificates', async () => tls?.close());
    const management = new ManagementServer(lifecycle, telemetry.metrics);
    lifecycle.onStop('telemetry', () => telemetry.stop());
    await management.listen(settings.listenHost, settings.managementPort);
    lifecycle.onStop('management port', () => management.close());
    const database = openDatabase({
      url: settings.databaseUrl,
      service: service.name,
      connections: settings.databaseConnections,
      logger,
    });
    lifecycle.onStop('database', () => database.close());
    await waitForSchema(database.pool, lifecycle, logger);
    if (lifecycle.state !== 'starting') return;
    const connections = new RemoteConnections(addressesOf(settings), tls);
    lifecycle.onStop('connections', () => connections.close());
    const wake = new WakeListener(settings.databaseUrl, logger);
    wake.start();
    lifecycle.onStop('wake-up connection', () => wake.close());
    const built = service.create(own, { common: settings, logger, database, connections, lifecycle, wake });
    let starting = Promise.resolve(false);
    let drained = false;
    const drain = async (): Promise<void> => {
      drained = true;
      await built.drain?.();
    };
    // After the ports: what they took is answered first. A start that is under way is waited for, and undone.
    lifecycle.onStop(service.name, async () => {
      if (!(await starting.catch(() => false))) return;
      if (!drained) await drain();
      await built.stop();
    });
    await serve(built, { settings, lifecycle, logger, tls });
    starting = startWhenPossible(built, lifecycle, logger);
    if (!(await starting) || lifecycle.state !== 'starting') return;
    lifecycle.onDrain(service.name, drain);
    logger.info('Started.');
  });
}

function openIdentity(service: ServiceName, settings: ProcessValues, logger: Logger): TlsIdentity | null {
  const files = tlsFilesOf(settings);
  return files && new TlsIdentity({ service, domain: settings.tlsDomain, files, logger });
}

interface Serving {
  settings: ProcessValues;
  lifecycle: Lifecycle;
  logger: Logger;
  tls: TlsIdentity | null;
}

async function serve(service: Service, { settings, lifecycle, logger, tls }: Serving): Promise<void> {
  const endpoints = service.endpoints.map((endpoint) => onceStarted(endpoint, service.name, lifecycle));
  const rpc = new GrpcServer([...endpoints, systemEndpoint(lifecycle, service)], logger, tls);
  await rpc.listen(settings.listenHost, settings.rpcPort);
  const ports: Pick<GrpcServer, 'close'>[] = [rpc];
  lifecycle.onStop('inner ports', async () => {
    await Promise.all(ports.map((port) => port.close(settings.drainMs)));
  });
  if (service.byteEndpoints.length === 0) return;
  const isDraining = (): boolean => lifecycle.state === 'draining';
  const bytes = new ByteServer(service.byteEndpoints, logger, { isDraining, tls });
  await bytes.listen(settings.listenHost, settings.bytesPort);
  ports.push(bytes);
}

function addressesOf(settings: ProcessValues): Partial<Record<ServiceName, Address>> {
  return {
    catalog: { rpc: settings.catalogRpc, bytes: null },
    upload: { rpc: settings.uploadRpc, bytes: settings.uploadBytes },
    'backend-registry': { rpc: settings.registryRpc, bytes: settings.registryBytes },
    placement: { rpc: settings.placementRpc, bytes: null },
    export: { rpc: settings.exportRpc, bytes: settings.exportBytes },
  };
}
