import { commonSettings } from '@stowage/common/runtime/common-settings';
import { Lifecycle } from '@stowage/common/runtime/lifecycle';
import { createLogger } from '@stowage/common/runtime/logger';
import { runProcess } from '@stowage/common/runtime/run-process';
import { settingsOrExit } from '@stowage/common/runtime/settings-or-exit';
import { launchSettings, openInstance, replicaSettings } from './instance.ts';
import { ServiceProcesses } from './service-processes.ts';

const { common, launch, replica } = settingsOrExit(
  { common: commonSettings, launch: launchSettings, replica: replicaSettings },
  process.env,
);
const logger = createLogger('launcher', common.logLevel);
const lifecycle = new Lifecycle(logger);
const limits = { drainDelayMs: 0, limitMs: common.drainDelayMs + common.drainMs + 5_000 };
await runProcess(lifecycle, logger, limits, async () => {
  const databaseUrl = await openInstance(launch, lifecycle, logger);
  const processes = await ServiceProcesses.plan(process.env, databaseUrl, replica.replicas, logger);
  lifecycle.onStop('services', () => processes.stop());
  await processes.start();
  process.stdout.write(`Stowage is ready, as ${processes.count} processes: ${processes.url}\n`);
});
