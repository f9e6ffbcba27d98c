import { openDatabase, queryBuilder } from '@stowage/common/database/database';
import type { Logger } from '@stowage/common/runtime/logger';
import { openKeyRing } from './secrets/open-key-ring.ts';
import { resealSecrets } from './secrets/reseal-secrets.ts';
import { registrySettings } from './settings.ts';
import type { RegistrySettings } from './settings.ts';
import type { Tables } from './tables.ts';

/** The settings of resealAll. */
export const resealSettings = { dataDir: registrySettings.dataDir, secretKeys: registrySettings.secretKeys };

/**
 * Seals every secret in the database at `url` under the first key of the settings, beside running services or without
 * them. May be run again. Gives how many were sealed anew. Throws StartupError where a key is not there, SealError where
 * a secret does not open.
 */
export async function resealAll(
  url: string,
  settings: Pick<RegistrySettings, keyof typeof resealSettings>,
  logger: Logger,
): Promise<number> {
  const database = openDatabase({ url, service: 'backend-registry', connections: 2, logger });
  try {
    const db = queryBuilder<Tables>(database);
    return await resealSecrets(db, await openKeyRing({ db, ...settings }));
  } finally {
    await database.close();
  }
}
