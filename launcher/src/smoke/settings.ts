import { setting, timeout } from '@stowage/common/runtime/settings';
import { applySettings } from '../declared/apply-settings.ts';

const { apiUrl, adminUsername, adminPassword } = applySettings;

/** Where the smoke test finds Stowage, and whom it logs in as. */
export const smokeSettings = {
  url: apiUrl,
  username: adminUsername,
  password: adminPassword,
  patienceMs: setting('STOWAGE_SMOKE_PATIENCE', 'How long the command `smoke` waits to be let in at all.', timeout, {
    fallback: '1m',
  }),
};
