import { settingsOrExit } from '@stowage/common/runtime/settings-or-exit';
import { runSmoke } from './smoke/run-smoke.ts';
import { smokeSettings } from './smoke/settings.ts';

const { settings } = settingsOrExit({ settings: smokeSettings }, process.env);
try {
  await runSmoke(settings, (line) => process.stdout.write(`${line}\n`));
  process.stdout.write('All of it works.\n');
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
