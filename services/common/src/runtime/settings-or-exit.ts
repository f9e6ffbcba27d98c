import { readSettings, SettingsError } from './settings.ts';
import type { Environment, GroupValues, SettingsGroups } from './settings.ts';

/** As readSettings, but a mistake ends the process with the message that lists them all. */
export function settingsOrExit<G extends SettingsGroups>(groups: G, environment: Environment): GroupValues<G> {
  try {
    return readSettings(groups, environment);
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    process.stderr.write(`${error.message}\n`);
    process.exit(1);
  }
}
