import { execFile } from 'node:child_process';
import { readFile, readlink, stat, unlink } from 'node:fs/promises';
import path from 'node:path';
import { exists, hasCode, until } from './files.ts';

const FAST_STOP_LIMIT_MS = 8_000;
const IMMEDIATE_STOP_LIMIT_MS = 10_000;
const UNWRITTEN_LIMIT_MS = 2_000;

/**
 * What the file postmaster.pid of a cluster tells. `running`: its process is the postmaster of this cluster; `status` is
 * what it says of itself (starting, ready, stopping). `unwritten`: a postmaster is just about to write it.
 * `stale`: left behind by one that was killed.
 */
export type FoundPostmaster =
  | { readonly state: 'none' | 'unwritten' }
  | { readonly state: 'stale'; readonly text: string }
  | { readonly state: 'running'; readonly pid: number; readonly port: number; readonly status: string };

/** Looks for the postmaster of `cluster` (absolute, without symbolic links). */
export async function findPostmaster(cluster: string): Promise<FoundPostmaster> {
  const file = path.join(cluster, 'postmaster.pid');
  let text: string;
  let ageMs: number;
  try {
    text = await readFile(file, 'utf8');
    ageMs = Date.now() - (await stat(file)).mtimeMs;
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return { state: 'none' };
    throw error;
  }
  const lines = text.split('\n');
  const pid = Number(lines[0]);
  if (!Number.isSafeInteger(pid) || pid <= 0) {
    return ageMs < UNWRITTEN_LIMIT_MS ? { state: 'unwritten' } : { state: 'stale', text };
  }
  if (!(await isPostmasterOf(pid, cluster))) return { state: 'stale', text };
  return { state: 'running', pid, port: Number(lines[3]), status: lines[7]?.trim() ?? '' };
}

/**
 * Removes a stale postmaster.pid. PostgreSQL does so itself, except when the file is empty or its process id has been
 * given to another process of the same user. Leaves it alone if it is no longer the one that was looked at.
 */
export async function removeStalePidFile(cluster: string, text: string): Promise<void> {
  const file = path.join(cluster, 'postmaster.pid');
  try {
    if ((await readFile(file, 'utf8')) === text) await unlink(file);
  } catch (error) {
    if (!hasCode(error, 'ENOENT')) throw error;
  }
}

/**
 * Stops the postmaster `pid` of `cluster`: disconnects its clients, writes a checkpoint and returns once the process is
 * gone. After 8 s it is made to exit at once, without harm to committed data. Does nothing if `pid` is not (or no
 * longer) the postmaster of `cluster`. Throws if it is there 10 s later still.
 */
export async function stopPostmaster(
  pid: number,
  cluster: string,
  gone = async (limitMs: number): Promise<boolean> => until(async () => !(await isPostmasterOf(pid, cluster)), limitMs),
): Promise<void> {
  const steps = [
    ['SIGINT', FAST_STOP_LIMIT_MS],
    ['SIGQUIT', IMMEDIATE_STOP_LIMIT_MS],
  ] as const;
  for (const [signal, limitMs] of steps) {
    if (!(await isPostmasterOf(pid, cluster)) || !send(pid, signal)) return;
    if (await gone(limitMs)) return;
  }
  throw new Error(`PostgreSQL (process ${pid}) did not stop`);
}

function send(pid: number, signal: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, signal);
  } catch (error) {
    if (hasCode(error, 'ESRCH')) return false;
    throw error;
  }
}

/**
 * Whether the process `pid` is a postgres that works in `cluster`. A process id alone proves nothing: it may have been
 * given to another process since.
 */
export async function isPostmasterOf(pid: number, cluster: string): Promise<boolean> {
  if (!(await exists('/proc/self'))) return isPostmasterCommand(await commandFromPs(pid), cluster);
  try {
    const [running, data] = await Promise.all([stat(`/proc/${pid}`), stat(cluster)]);
    if (running.uid !== data.uid) return false;
    const [executable, folder] = await Promise.all([readlink(`/proc/${pid}/exe`), readlink(`/proc/${pid}/cwd`)]);
    // By name: it may be a copy, or npm may have replaced the file since ("... (deleted)").
    return path.basename(executable.replace(/ \(deleted\)$/, '')) === 'postgres' && folder === cluster;
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ESRCH')) return false;
    if (!hasCode(error, 'EACCES', 'EPERM')) throw error;
  }
  // A container's root lacks CAP_SYS_PTRACE, which reading another user's links needs.
  return isPostmasterCommand(await readCommand(pid), cluster);
}

function isPostmasterCommand(command: readonly string[], cluster: string): boolean {
  const [program = '', option, directory] = command;
  return path.basename(program) === 'postgres' && option === '-D' && directory === cluster;
}

async function readCommand(pid: number): Promise<readonly string[]> {
  try {
    return (await readFile(`/proc/${pid}/cmdline`, 'utf8')).split('\0');
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ESRCH')) return [];
    throw error;
  }
}

async function commandFromPs(pid: number): Promise<readonly string[]> {
  const line = await new Promise<string>((resolve, reject) => {
    execFile('ps', ['-ww', '-o', 'command=', '-p', String(pid)], (error, stdout) => {
      // ps itself exits with 1 when there is no such process.
      if (error === null || typeof error.code === 'number') resolve(stdout);
      else reject(error);
    });
  });
  const match = /^(.*\/postgres) -D (.*?) -p \d+ /.exec(line);
  return match?.[1] === undefined || match[2] === undefined ? [] : [match[1], '-D', match[2]];
}
