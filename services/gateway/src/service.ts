import type { Service } from '@stowage/common/runtime/service';
import type { ServiceDependencies } from '@stowage/common/runtime/service';
import type { ServiceProcess } from '@stowage/common/runtime/run-service';
import { queryBuilder, readBuilder } from '@stowage/common/database/database';
import {
  appendUpload,
  createUploadWithBody,
  importPlan,
  planRestore,
  readBlob,
  readExport,
  validateDocument,
} from '@stowage/common/bytes/operations';
import { closeHttpServer } from '@stowage/common/runtime/close-http-server';
import { StartupError } from '@stowage/common/runtime/run-process';
import { serviceNames } from '@stowage/common/rpc/connections';
import { BackendService } from '@stowage/proto/stowage/backend_registry/v1/backend';
import { ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import { TreeService } from '@stowage/proto/stowage/catalog/v1/tree';
import { DocumentService } from '@stowage/proto/stowage/export/v1/document';
import { ExportService } from '@stowage/proto/stowage/export/v1/export';
import { JobService } from '@stowage/proto/stowage/placement/v1/job';
import { PolicyService } from '@stowage/proto/stowage/placement/v1/policy';
import { SystemService } from '@stowage/proto/stowage/system/v1/system';
import { UploadService } from '@stowage/proto/stowage/upload/v1/upload';
import { buildApp } from './app.ts';
import type { App, AppDependencies } from './app-types.ts';
import { makeFirstAdmin } from './auth/first-admin.ts';
import { ImagePreviewer } from './content/preview-process.ts';
import { gatewaySettings } from './settings.ts';
import type { GatewaySettings } from './settings.ts';
import type { Tables } from './tables.ts';

/** What a picture may cost before its preview is given up. */
const previewLimits = { pixels: 50_000_000, timeoutMs: 10_000, memoryBytes: 512 * 1024 * 1024, queue: 64 };

/** The only service that faces the outside. */
export const serviceProcess: ServiceProcess<typeof gatewaySettings> = {
  name: 'gateway',
  settings: gatewaySettings,
  create: createGateway,
};

function createGateway(settings: GatewaySettings, dependencies: ServiceDependencies): Service {
  const { logger, common } = dependencies;
  const handed = appDependencies(settings, dependencies);
  let app: App | null = null;
  return {
    name: 'gateway',
    endpoints: [],
    byteEndpoints: [],
    async start() {
      const made = await makeFirstAdmin(handed.db, settings);
      if (made) announce(made);
      app = await buildApp(handed);
      await listen(app, settings);
      logger.info({ host: settings.host, port: settings.port }, 'The gateway listens.');
    },
    async stop() {
      if (app) await closeWithin(app, common.drainMs);
      await handed.previewer.close();
    },
  };
}

function appDependencies(settings: GatewaySettings, dependencies: ServiceDependencies): AppDependencies {
  const { connections, database, lifecycle, logger } = dependencies;
  const behind = serviceNames.filter((name) => name !== 'gateway');
  return {
    settings,
    logger,
    db: queryBuilder<Tables>(database),
    reads: readBuilder<Tables>(database),
    tree: connections.client(TreeService),
    content: connections.client(ContentService),
    uploads: connections.client(UploadService),
    backends: connections.client(BackendService),
    jobs: connections.client(JobService),
    policies: connections.client(PolicyService),
    exports: connections.client(ExportService),
    documents: connections.client(DocumentService),
    systems: new Map(behind.map((name) => [name, connections.client(SystemService, name)])),
    createUploadWithBody: connections.uploader(createUploadWithBody),
    appendUpload: connections.uploader(appendUpload),
    readBlob: connections.downloader(readBlob),
    readExport: connections.downloader(readExport),
    validateDocument: connections.uploader(validateDocument),
    planRestore: connections.uploader(planRestore),
    importPlan: connections.uploader(importPlan),
    previewer: new ImagePreviewer(previewLimits),
    isReady: () => lifecycle.state === 'ready',
    isDraining: () => lifecycle.state === 'draining',
  };
}

/** Shown once, on the terminal and not in the log: only the hash is kept. */
function announce({ username, password }: { username: string; password: string }): void {
  process.stdout.write(
    `\n  First start: log in as "${username}" with the password ${password}\n  It is shown only now.\n\n`,
  );
}

async function listen(app: App, settings: GatewaySettings): Promise<void> {
  try {
    await app.listen({ host: settings.host, port: settings.port });
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : null;
    if (code === 'EADDRINUSE') {
      throw new StartupError(
        `Port ${settings.port} is in use already: end what uses it, or set STOWAGE_PORT to another one.`,
      );
    }
    if (code === 'EACCES')
      throw new StartupError(`Port ${settings.port} needs more rights: set STOWAGE_PORT to another one.`);
    throw error;
  }
}

/** Takes no new requests, lets those under way finish for a while, then cuts them off. */
async function closeWithin(app: App, drainMs: number): Promise<void> {
  await closeHttpServer(app.server, drainMs);
  await app.close();
}
