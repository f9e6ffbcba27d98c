import type { Kysely } from 'kysely';
import { query } from '@stowage/common/database/transaction';
import { MendableError } from '@stowage/common/runtime/run-process';
import type { Tables } from '../tables.ts';
import { keyFileIn, makeKeyFile, readKeyFile } from './key-file.ts';
import { KeyRing, SealError } from './key-ring.ts';
import type { SecretKey } from './key-ring.ts';
import { openCanary } from './secret-table.ts';

interface Needs {
  db: Kysely<Tables>;
  dataDir: string;
  /** Of the settings; empty where none are set. */
  secretKeys: readonly SecretKey[];
}

/**
 * The keys of the settings, then the one in the data folder, which is made where there is no other key and nothing is
 * sealed yet. Throws MendableError where something is sealed under a key that is not there: to go on with a new one would
 * lose the secrets without a word.
 */
export async function openKeyRing({ db, dataDir, secretKeys }: Needs): Promise<KeyRing> {
  const kept = await readKeyFile(dataDir);
  const own = kept !== null && secretKeys.every(({ id }) => id !== kept.id) ? [kept] : [];
  const keys = [...secretKeys, ...own];
  const used = await usedKeys(db);
  const lost = used.filter((id) => keys.every((key) => key.id !== id));
  if (lost.length > 0) throw new MendableError(lostKeys(lost, dataDir));
  const ring = new KeyRing(keys.length > 0 ? keys : [await makeKey(dataDir)]);
  await checkCanaries(db, ring, used);
  return ring;
}

async function makeKey(dataDir: string): Promise<SecretKey> {
  try {
    return await makeKeyFile(dataDir);
  } catch (error) {
    if (error instanceof MendableError) throw error;
    const file = keyFileIn(dataDir);
    throw new MendableError(`The key file ${file} can't be made (${String(error)}): set STOWAGE_SECRET_KEYS.`);
  }
}

function lostKeys(lost: readonly string[], dataDir: string): string {
  const names = lost.map((id) => `"${id}"`).join(', ');
  return (
    `Secrets of backends are sealed under ${names}, and that key is not there: ` +
    `bring ${keyFileIn(dataDir)} back, or add the key to STOWAGE_SECRET_KEYS.`
  );
}

async function usedKeys(db: Kysely<Tables>): Promise<string[]> {
  const rows = await query(() =>
    db.selectFrom('registry.backend_secrets').select('key_id').distinct().orderBy('key_id').execute(),
  );
  return rows.map((row) => row.key_id);
}

async function checkCanaries(db: Kysely<Tables>, ring: KeyRing, used: readonly string[]): Promise<void> {
  const rows = await query(() => db.selectFrom('registry.secret_keys').selectAll().execute());
  for (const row of rows.filter(({ id }) => used.includes(id))) {
    try {
      openCanary(ring, row);
    } catch (error) {
      if (!(error instanceof SealError)) throw error;
      throw new MendableError(`The key "${row.id}" is not the one that secrets were sealed with under this id.`);
    }
  }
}
