import { randomBytes, randomUUID } from 'node:crypto';
import { link, mkdir, open, readFile, unlink } from 'node:fs/promises';
import path from 'node:path';
import { MendableError } from '@stowage/common/runtime/run-process';
import { hasCode, syncDirectory } from '../stores/local-files.ts';
import { keyBytes, parseSecretKey } from './key-ring.ts';
import type { SecretKey } from './key-ring.ts';

const fileName = 'secret.key';

/** Where a data folder keeps the key that was made for it. */
export function keyFileIn(dataDir: string): string {
  return path.join(dataDir, fileName);
}

/** The key in the data folder, or null where there is none. Throws MendableError for a file that holds no key. */
export async function readKeyFile(dataDir: string): Promise<SecretKey | null> {
  const file = keyFileIn(dataDir);
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return null;
    throw new MendableError(`The key file ${file} can't be read: bring it back, or set STOWAGE_SECRET_KEYS.`, {
      cause: error,
    });
  }
  try {
    return parseSecretKey(text.trim());
  } catch (error) {
    throw new MendableError(`The key file ${file} is damaged: bring it back from a backup.`, { cause: error });
  }
}

/**
 * Makes a random key and keeps it in the data folder, for its owner alone: durably, and never in place of one that is
 * there. Gives the key that is there afterwards, which another process may have made.
 */
export async function makeKeyFile(dataDir: string): Promise<SecretKey> {
  await mkdir(dataDir, { recursive: true });
  const file = keyFileIn(dataDir);
  const temporary = `${file}.${randomUUID()}.tmp`;
  const id = `local-${randomBytes(4).toString('hex')}`;
  const handle = await open(temporary, 'wx', 0o600);
  try {
    await handle.writeFile(`${id}:${randomBytes(keyBytes).toString('base64')}\n`);
    await handle.sync();
  } finally {
    await handle.close();
  }
  try {
    // Unlike a rename, a link never replaces.
    await link(temporary, file);
  } catch (error) {
    if (!hasCode(error, 'EEXIST')) throw error;
  } finally {
    await unlink(temporary);
  }
  await syncDirectory(dataDir);
  const made = await readKeyFile(dataDir);
  if (made === null) throw new MendableError(`The key file ${file} went away while it was made.`);
  return made;
}
