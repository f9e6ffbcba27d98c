import { resealAll, resealSettings } from '@stowage/backend-registry/reseal';
import { Lifecycle } from '@stowage/common/runtime/lifecycle';
import { createLogger } from '@stowage/common/runtime/logger';
import { settingsOrExit } from '@stowage/common/runtime/settings-or-exit';
import { launchSettings, openInstance } from './instance.ts';

const { launch, seals } = settingsOrExit({ launch: launchSettings, seals: resealSettings }, process.env);
const logger = createLogger('reseal-secrets', 'warn');
const lifecycle = new Lifecycle(logger);
try {
  // An embedded database runs with its Stowage only, so that has to be stopped; any other is used beside it.
  const url = launch.databaseUrl ?? (await openInstance(launch, lifecycle, logger));
  const count = await resealAll(url, seals, logger);
  process.stdout.write(`${count} secrets were sealed anew; all are under the first key now.\n`);
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
} finally {
  await lifecycle.shutDown(0);
}
