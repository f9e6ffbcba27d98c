import { createLogger } from '@stowage/common/runtime/logger';
import { settingsOrExit } from '@stowage/common/runtime/settings-or-exit';
import { migrateSettings, migrateWithin } from './migrate-within.ts';

const { settings } = settingsOrExit({ settings: migrateSettings }, process.env);
const logger = createLogger('migrate', settings.logLevel);
// What was not committed is rolled back, and the next run does it: the end need not be awaited.
for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => process.exit(1));
try {
  const applied = await migrateWithin(settings.databaseUrl, settings.timeoutMs, logger);
  logger.info({ applied }, applied.length > 0 ? 'The database was migrated.' : 'The database is up to date.');
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
