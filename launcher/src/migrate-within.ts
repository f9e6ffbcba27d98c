import { setTimeout as sleep } from 'node:timers/promises';
import { toDatabaseError } from '@stowage/common/database/database-error';
import { migrate } from '@stowage/common/database/migrate';
import { describeError } from '@stowage/common/describe-error';
import { AppError } from '@stowage/common/errors';
import { commonSettings, databaseSettings } from '@stowage/common/runtime/common-settings';
import type { Logger } from '@stowage/common/runtime/logger';
import { StartupError } from '@stowage/common/runtime/run-process';
import { setting, timeout } from '@stowage/common/runtime/settings';
import pg from 'pg';

/** Settings of the command that migrates. */
export const migrateSettings = {
  logLevel: commonSettings.logLevel,
  databaseUrl: databaseSettings.databaseUrl,
  timeoutMs: setting('STOWAGE_MIGRATE_TIMEOUT', 'How long `migrate` waits for the database.', timeout, {
    fallback: '5m',
  }),
};

const pollMs = 1_000;
const connectMs = 5_000;

/**
 * Brings the database at `url` to the present schema, once it is there; gives the names of what it applied.
 * @throws StartupError where it is not there within `timeoutMs`, or has a newer schema; what a migration throws.
 */
export async function migrateWithin(url: string, timeoutMs: number, logger: Logger): Promise<string[]> {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    const problem = await whyUnreachable(url);
    if (problem === null) {
      try {
        return await migrate(url);
      } catch (error) {
        // What it did is rolled back where the connection was lost.
        if (!(toDatabaseError(error) instanceof AppError)) throw error;
        logger.warn({ err: error }, 'The database went away; the migration starts over.');
      }
    } else {
      logger.warn({ problem }, 'Waiting for the database.');
    }
    if (Date.now() + pollMs > deadline) {
      const seconds = Math.round(timeoutMs / 1000);
      throw new StartupError(`The database was not there within ${seconds} s: ${problem ?? 'it went away'}.`);
    }
    await sleep(pollMs);
  }
}

/** Any failure may pass: a database that is being made lacks its roles and passwords too. */
async function whyUnreachable(url: string): Promise<string | null> {
  const client = new pg.Client({
    connectionString: url,
    connectionTimeoutMillis: connectMs,
    query_timeout: connectMs,
    application_name: 'stowage-migrate',
  });
  client.on('error', () => undefined);
  try {
    await client.connect();
    await client.query('select 1');
    return null;
  } catch (error) {
    return describeError(error);
  } finally {
    await client.end().catch(() => undefined);
  }
}
