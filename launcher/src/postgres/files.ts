import { randomBytes } from 'node:crypto';
import { access, chmod, mkdir, open, readdir, rm } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const POLL_MS = 20;

// Work folders of this process that are in use, since two starts can happen in one process.
const ownWork = new Set<string>();

/** Whether `error` is a system error with one of `codes`. */
export function hasCode(error: unknown, ...codes: string[]): boolean {
  if (typeof error !== 'object' || error === null || !('code' in error)) return false;
  return typeof error.code === 'string' && codes.includes(error.code);
}

/** Whether `file` exists. Errors other than "no such file" are thrown. */
export async function exists(file: string): Promise<boolean> {
  try {
    await access(file);
    return true;
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return false;
    throw error;
  }
}

/** Whether a process with this id exists, whoever's it is. */
export function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return hasCode(error, 'EPERM');
  }
}

/** Asks `check` every 20 ms until it returns true; returns false if it did not within `limitMs` milliseconds. */
export async function until(check: () => Promise<boolean>, limitMs: number): Promise<boolean> {
  const deadline = performance.now() + limitMs;
  while (!(await check())) {
    if (performance.now() > deadline) return false;
    await sleep(POLL_MS);
  }
  return true;
}

/** Creates `directory` with its parents. Those it creates can be passed through by everyone, whatever the umask. */
export async function makeTraversable(directory: string): Promise<void> {
  if (await exists(directory)) return;
  await makeTraversable(path.dirname(directory));
  try {
    await mkdir(directory);
    await chmod(directory, 0o755);
  } catch (error) {
    if (!hasCode(error, 'EEXIST')) throw error;
  }
}

/** Makes the names in `directory`, such as a rename that was just done, survive a power failure. */
export async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/**
 * Runs `work` with a new folder `<parent>/<prefix><pid>-<random>`, which is removed afterwards.
 * First removes those left behind by processes that were killed.
 */
export async function withWorkFolder<T>(
  parent: string,
  prefix: string,
  work: (folder: string) => Promise<T>,
): Promise<T> {
  await sweep(parent, prefix);
  const folder = path.join(parent, `${prefix}${process.pid}-${randomBytes(6).toString('hex')}`);
  ownWork.add(folder);
  try {
    await mkdir(folder);
    await chmod(folder, 0o755);
    return await work(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
    ownWork.delete(folder);
  }
}

async function sweep(parent: string, prefix: string): Promise<void> {
  for (const name of await readdir(parent)) {
    if (!name.startsWith(prefix)) continue;
    const pid = Number.parseInt(name.slice(prefix.length), 10);
    const folder = path.join(parent, name);
    const inUse = pid === process.pid ? ownWork.has(folder) : isAlive(pid);
    // An initdb that outlived its parent may still be writing there: the next start gets the rest.
    if (!inUse) await rm(folder, { recursive: true, force: true }).catch(() => undefined);
  }
}
