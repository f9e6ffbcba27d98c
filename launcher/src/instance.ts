import { mkdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { migrate } from '@stowage/common/database/migrate';
import { postgresUrl } from '@stowage/common/runtime/common-settings';
import type { Lifecycle } from '@stowage/common/runtime/lifecycle';
import type { Logger } from '@stowage/common/runtime/logger';
import { StartupError } from '@stowage/common/runtime/run-process';
import { integer, setting, text } from '@stowage/common/runtime/settings';
import type { Values } from '@stowage/common/runtime/settings';
import { startEmbeddedPostgres } from './embedded-postgres.ts';
import { InstanceLock } from './instance-lock.ts';

/** Settings of a process that brings its own database unless it is told of one. */
export const launchSettings = {
  dataDir: setting('STOWAGE_DATA_DIR', 'Where metadata and content live.', text, { fallback: './data' }),
  databaseUrl: setting<string | null>(
    'STOWAGE_DATABASE_URL',
    'PostgreSQL 15 or later; without it an embedded one is started.',
    postgresUrl,
    { absent: null, secret: true },
  ),
  managementPort: setting<number | null>(
    'STOWAGE_MANAGEMENT_PORT',
    'The port of probes and metrics.',
    integer(0, 65_535),
    {
      absent: null,
    },
  ),
};

/** Settings of the launcher of services in processes of their own. */
export const replicaSettings = {
  replicas: setting(
    'STOWAGE_REPLICAS',
    'Processes of each service but the gateway that `npm run start:services` runs.',
    integer(1, 8),
    { fallback: '1' },
  ),
};

/**
 * Makes the data folder this process's own, with a database of the present schema. Gives the database's address.
 * Throws StartupError where another Stowage has the folder.
 */
export async function openInstance(
  settings: Values<typeof launchSettings>,
  lifecycle: Lifecycle,
  logger: Logger,
): Promise<string> {
  const dataDir = makeDataDirectory(settings.dataDir);
  const { url, keepRunning, stop } =
    settings.databaseUrl === null ? await embedded(dataDir, logger) : external(settings.databaseUrl);
  const lock = new InstanceLock(url, logger, endAtOnce);
  await lock.acquire(dataDir);
  // Only now is the embedded server ours to keep and to stop: before, it may have been another process's.
  keepRunning();
  lifecycle.onStop('embedded PostgreSQL', stop);
  lifecycle.onStop('instance lock', () => lock.release());
  const applied = await migrate(url);
  if (applied.length > 0) logger.info({ applied }, 'The database was migrated.');
  return url;
}

/** Two at a time would each take the other's work for that of a dead process. All that is acknowledged is durable. */
function endAtOnce(): never {
  process.stderr.write('Another Stowage took this database while the connection to it was lost; this one ends.\n');
  process.exit(1);
}

interface Opened {
  url: string;
  keepRunning(): void;
  stop(): Promise<void>;
}

async function embedded(dataDir: string, logger: Logger): Promise<Opened> {
  const directory = join(dataDir, 'postgres');
  const server = await startEmbeddedPostgres({ directory, log: (message) => logger.info(message) });
  return { ...server, url: server.localUrl };
}

function external(url: string): Opened {
  return { url, keepRunning: () => undefined, stop: async () => undefined };
}

function makeDataDirectory(path: string): string {
  const absolute = resolve(path);
  try {
    mkdirSync(absolute, { recursive: true });
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new StartupError(`The data folder ${absolute} can't be made: ${why}`);
  }
  return absolute;
}
