import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { join } from 'node:path';
import type { System } from './system.ts';

const repository = join(import.meta.dirname, '../..');

/** A random key as STOWAGE_SECRET_KEYS takes it. */
export function newSecretKey(id: string): string {
  return `${id}:${randomBytes(32).toString('base64')}`;
}

/** What `npm run reseal-secrets` ends with, beside a system or without it. */
export async function resealSecrets(system: System, keys: string): Promise<{ code: number; output: string }> {
  const child = spawn(process.execPath, [join(repository, 'launcher/src/reseal-secrets.ts')], {
    cwd: repository,
    env: {
      PATH: process.env['PATH'],
      HOME: process.env['HOME'],
      STOWAGE_DATABASE_URL: system.databaseUrl,
      STOWAGE_DATA_DIR: system.dataDir,
      STOWAGE_SECRET_KEYS: keys,
    },
  });
  let output = '';
  child.stdout.on('data', (piece) => (output += piece));
  child.stderr.on('data', (piece) => (output += piece));
  const [code] = await once(child, 'close');
  return { code, output };
}
