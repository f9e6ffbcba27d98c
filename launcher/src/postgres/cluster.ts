import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmod, chown, link, open, readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { type Account, isRoot, spawnAs } from './account.ts';
import type { Binaries } from './binaries.ts';
import { exists, hasCode, syncDirectory, withWorkFolder } from './files.ts';
import type { Home } from './home.ts';

const INITDB_LIMIT_MS = 120_000;

/** All that PostgreSQL gets of our environment: nothing that would change its locale, time zone or behaviour. */
export const POSTGRES_ENVIRONMENT = { LC_ALL: 'C', TZ: 'UTC', PATH: '/usr/bin:/bin' };

/** The superuser's password of the existing cluster in `home`. Throws when its file is missing. */
export async function readPassword(home: Home): Promise<string> {
  try {
    const password = (await readFile(home.passwordFile, 'utf8')).trim();
    if (password !== '') return password;
  } catch (error) {
    if (!hasCode(error, 'ENOENT')) throw error;
  }
  throw new Error(`${home.cluster} is there, but its password file ${home.passwordFile} is not: bring it back`);
}

/**
 * Creates the cluster in `home` unless it exists. It appears whole or not at all, however this ends; the one of another
 * start that was faster is as good. `durable: false` leaves out the fsync. Throws with initdb's message if that fails.
 */
export async function ensureCluster(home: Home, binaries: Binaries, durable: boolean): Promise<void> {
  if (await exists(home.cluster)) return;
  const password = await ensurePassword(home);
  await withWorkFolder(home.directory, 'initdb-', async (work) => {
    const cluster = path.join(work, 'cluster');
    // initdb reads it as another user, who shall not own the one that is kept.
    const passwordFile = path.join(work, 'password');
    await writeFile(passwordFile, password, { mode: 0o600 });
    if (isRoot()) {
      for (const file of [work, passwordFile]) await chown(file, home.account.uid, home.account.gid);
    }
    await runInitdb(binaries, work, passwordFile, home.account, durable);
    try {
      await rename(cluster, home.cluster);
    } catch (error) {
      if (!hasCode(error, 'ENOTEMPTY', 'EEXIST')) throw error;
    }
  });
  await syncDirectory(home.directory);
}

async function ensurePassword(home: Home): Promise<string> {
  if (await exists(home.passwordFile)) return readPassword(home);
  const temporary = `${home.passwordFile}.${randomBytes(6).toString('hex')}.new`;
  const handle = await open(temporary, 'wx', 0o600);
  try {
    await handle.writeFile(`${randomBytes(18).toString('base64url')}\n`);
    await handle.sync();
  } finally {
    await handle.close();
  }
  try {
    await link(temporary, home.passwordFile);
  } catch (error) {
    if (!hasCode(error, 'EEXIST')) throw error;
  } finally {
    await rm(temporary, { force: true });
  }
  return readPassword(home);
}

async function runInitdb(
  binaries: Binaries,
  work: string,
  passwordFile: string,
  account: Account,
  durable: boolean,
): Promise<void> {
  const cluster = path.join(work, 'cluster');
  const args = ['-D', cluster, '-U', 'postgres', `--pwfile=${passwordFile}`, '-A', 'scram-sha-256', '-E', 'UTF8'];
  // The host need not have any locale but C.
  args.push('--locale-provider=builtin', '--builtin-locale=C.UTF-8', '--locale=C', '--data-checksums');
  if (!durable) args.push('--no-sync');
  const options = { ...spawnAs(account), cwd: work, env: POSTGRES_ENVIRONMENT, timeout: INITDB_LIMIT_MS };
  await new Promise<void>((resolve, reject) => {
    execFile(binaries.initdb, args, options, (error, stdout, stderr) => {
      if (error === null) return resolve();
      const output = `${stdout}\n${stderr}`.trim().split('\n').slice(-10).join('\n');
      const reason = error.killed === true ? `took longer than ${INITDB_LIMIT_MS / 1000} s` : error.message;
      reject(new Error(`the database could not be created: ${binaries.initdb} ${reason}\n${output}`, { cause: error }));
    });
  });
  await chmod(cluster, 0o700);
}
