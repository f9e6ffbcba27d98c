import { serviceProcess as registry } from '@stowage/backend-registry/service';
import { serviceProcess as catalog } from '@stowage/catalog/service';
import { openDatabase } from '@stowage/common/database/database';
import { WakeListener } from '@stowage/common/jobs/wake-listener';
import { LocalConnections } from '@stowage/common/rpc/connections';
import { systemEndpoint } from '@stowage/common/rpc/system-endpoint';
import { commonSettings } from '@stowage/common/runtime/common-settings';
import { Lifecycle } from '@stowage/common/runtime/lifecycle';
import { createLogger } from '@stowage/common/runtime/logger';
import type { Logger } from '@stowage/common/runtime/logger';
import { ManagementServer } from '@stowage/common/runtime/management-server';
import { runProcess } from '@stowage/common/runtime/run-process';
import { settingsOrExit } from '@stowage/common/runtime/settings-or-exit';
import type { ServiceProcess } from '@stowage/common/runtime/run-service';
import type { ServiceDependencies } from '@stowage/common/runtime/service';
import type { Environment, Settings, Values } from '@stowage/common/runtime/settings';
import type { Telemetry } from '@stowage/common/runtime/telemetry';
import { serviceProcess as exporter } from '@stowage/export/service';
import { serviceProcess as gateway } from '@stowage/gateway/service';
import { serviceProcess as placement } from '@stowage/placement/service';
import { serviceProcess as upload } from '@stowage/upload/service';
import { launchSettings, openInstance } from './instance.ts';

/** Runs all six services in this process, with no socket between them, and the embedded PostgreSQL unless told of another. */
export async function runStandalone(environment: Environment, telemetry: Telemetry): Promise<void> {
  const settings = settingsOrExit(
    {
      common: commonSettings,
      launch: launchSettings,
      registry: registry.settings,
      catalog: catalog.settings,
      placement: placement.settings,
      upload: upload.settings,
      exporter: exporter.settings,
      gateway: gateway.settings,
    },
    environment,
  );
  const { common, launch } = settings;
  const logger = createLogger('standalone', common.logLevel);
  const lifecycle = new Lifecycle(logger);
  const limits = { drainDelayMs: common.drainDelayMs, limitMs: common.drainMs + 1_500 };
  await runProcess(lifecycle, logger, limits, async () => {
    lifecycle.onStop('telemetry', () => telemetry.stop());
    const databaseUrl = await openInstance(launch, lifecycle, logger);
    if (launch.managementPort !== null) await openManagement(launch.managementPort, lifecycle, telemetry);
    const host = new Host(databaseUrl, common, lifecycle, logger);
    await host.run(registry, settings.registry);
    await host.run(catalog, settings.catalog);
    await host.run(placement, settings.placement);
    await host.run(upload, settings.upload);
    await host.run(exporter, settings.exporter);
    await host.run(gateway, settings.gateway);
    const { host: address, port } = settings.gateway;
    process.stdout.write(`Stowage is ready: http://${address.includes(':') ? `[${address}]` : address}:${port}\n`);
  });
}

async function openManagement(port: number, lifecycle: Lifecycle, telemetry: Telemetry): Promise<void> {
  const management = new ManagementServer(lifecycle, telemetry.metrics);
  await management.listen('127.0.0.1', port);
  lifecycle.onStop('management port', () => management.close());
}

/** Builds and starts services one after the other on what they share. */
class Host {
  readonly #databaseUrl: string;
  readonly #shared: Pick<ServiceDependencies, 'common' | 'lifecycle' | 'wake'>;
  readonly #connections: LocalConnections;
  readonly #logger: Logger;

  constructor(databaseUrl: string, common: ServiceDependencies['common'], lifecycle: Lifecycle, logger: Logger) {
    const wake = new WakeListener(databaseUrl, logger);
    wake.start();
    lifecycle.onStop('wake-up connection', () => wake.close());
    this.#databaseUrl = databaseUrl;
    this.#shared = { common, lifecycle, wake };
    this.#connections = new LocalConnections(logger);
    this.#logger = logger;
  }

  async run<S extends Settings>(service: ServiceProcess<S>, settings: Values<S>): Promise<void> {
    const { common, lifecycle } = this.#shared;
    const logger = this.#logger.child({ service: service.name });
    const database = openDatabase({
      url: this.#databaseUrl,
      service: service.name,
      connections: common.databaseConnections,
      logger,
    });
    lifecycle.onStop(`database of ${service.name}`, () => database.close());
    const built = service.create(settings, { ...this.#shared, database, connections: this.#connections, logger });
    this.#connections.add(service.name, [...built.endpoints, systemEndpoint(lifecycle, built)], built.byteEndpoints);
    await built.start();
    lifecycle.onStop(service.name, () => built.stop());
    lifecycle.onDrain(service.name, async () => built.drain?.());
  }
}
