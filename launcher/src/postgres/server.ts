import { type ChildProcess, spawn } from 'node:child_process';
import { type FileHandle, open, rename, stat } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { isRoot, spawnAs } from './account.ts';
import type { Binaries } from './binaries.ts';
import { POSTGRES_ENVIRONMENT } from './cluster.ts';
import { freePort } from '../free-ports.ts';
import { hasCode, until } from './files.ts';
import type { Home } from './home.ts';
import { findPostmaster } from './postmaster.ts';

const LOG_LIMIT_BYTES = 16 * 1024 * 1024;
const TAIL_BYTES = 4096;
const TAIL_LINES = 12;
const SOCKET_PATH_LIMIT = 100;
const MAX_PORT = 65_535;

const DEFAULT_SETTINGS = {
  listen_addresses: '127.0.0.1',
  max_connections: '200',
  shared_buffers: '128MB',
  synchronous_commit: 'on',
};

// Reasons that pass: another start, the last backends of a killed postmaster, somebody who took the free port.
const PASSING = /lock file "postmaster.pid"|pre-existing shared memory block|could not create any TCP\/IP sockets/;

/** A postmaster that this process started. */
export interface Server {
  readonly pid: number;
  readonly port: number;
  /** Resolves with a few words on how it ended. */
  readonly exited: Promise<string>;
}

/** Why a postmaster did not come up; `passing` if another attempt may do better. */
export class ServerFailed extends Error {
  readonly passing: boolean;
  constructor(message: string, passing: boolean, cause?: unknown) {
    super(message, { cause });
    this.name = 'ServerFailed';
    this.passing = passing;
  }
}

/**
 * Starts a postmaster on the cluster in `home` and a port of 127.0.0.1, by default any free one, and returns when it accepts
 * connections. It survives this process and its Ctrl-C. Throws ServerFailed, with the end of its log, if it exits
 * before or is not ready after `limitMs` milliseconds; in the latter case it goes on, as it may be recovering.
 */
export async function launch(
  home: Home,
  binaries: Binaries,
  settings: Readonly<Record<string, string>>,
  { limitMs, port: wanted }: { limitMs: number; port?: number | undefined },
): Promise<Server> {
  const port = wanted ?? (await freePort());
  await rotateLog(home.logFile);
  const logFile = await openLog(home);
  const logStart = (await logFile.stat()).size;
  const child = spawn(binaries.postgres, postgresArguments(home, port, settings), {
    ...spawnAs(home.account),
    cwd: home.directory,
    env: POSTGRES_ENVIRONMENT,
    detached: true,
    stdio: ['ignore', logFile.fd, logFile.fd],
  });
  const fate: { ended: string | undefined } = { ended: undefined };
  // Before any await: it may exit in the meantime.
  const exited = ending(child).then((how) => (fate.ended = how));
  await logFile.close();
  const { pid } = child;
  if (pid === undefined) throw new ServerFailed(`${binaries.postgres} could not be run: ${await exited}`, false);
  child.unref();
  const ready = until(async () => fate.ended !== undefined || (await isReady(home.cluster, pid)), limitMs);
  // Wakes up at once when it exits.
  const inTime = await Promise.race([ready, exited.then(() => true)]);
  const { ended } = fate;
  if (ended === undefined && inTime) return { pid, port, exited };
  const tail = await logTail(home.logFile, logStart);
  const problem =
    ended === undefined ? `is not ready after ${limitMs / 1000} s and goes on starting` : `ended: ${ended}`;
  throw new ServerFailed(`PostgreSQL ${problem}\n${home.logFile}:\n${tail}`, ended !== undefined && PASSING.test(tail));
}

/** The last lines of `logFile`, of those written after the first `start` bytes. */
export async function logTail(logFile: string, start = 0): Promise<string> {
  const handle = await open(logFile, 'r');
  try {
    const { size } = await handle.stat();
    const position = Math.max(Math.min(start, size), size - TAIL_BYTES);
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(TAIL_BYTES), 0, TAIL_BYTES, position);
    return buffer.toString('utf8', 0, bytesRead).trimEnd().split('\n').slice(-TAIL_LINES).join('\n');
  } finally {
    await handle.close();
  }
}

function postgresArguments(home: Home, port: number, settings: Readonly<Record<string, string>>): string[] {
  const args = ['-D', home.cluster, '-p', String(port)];
  const all = { ...DEFAULT_SETTINGS, unix_socket_directories: socketFolder(home), ...settings };
  for (const [name, value] of Object.entries(all)) args.push('-c', `${name}=${value}`);
  return args;
}

/** Where the server has its Unix socket: in its cluster, which nobody else can enter; empty where the path will not do. */
function socketFolder({ cluster }: Home): string {
  return /^[\w./-]+$/.test(cluster) && socketOf(cluster, MAX_PORT).length <= SOCKET_PATH_LIMIT ? cluster : '';
}

/** The Unix socket of the server on `cluster` that listens on `port`, if it has one. */
export function socketOf(cluster: string, port: number): string {
  return path.join(cluster, `.s.PGSQL.${port}`);
}

async function isReady(cluster: string, pid: number): Promise<boolean> {
  const found = await findPostmaster(cluster);
  return found.state === 'running' && found.pid === pid && found.status === 'ready';
}

async function ending(child: ChildProcess): Promise<string> {
  return new Promise((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('exit', (code, signal) => resolve(signal ?? `exit code ${code}`));
  });
}

// The log quotes statements that failed, and so data: it belongs to the owner of the cluster alone.
async function openLog(home: Home): Promise<FileHandle> {
  const logFile = await open(home.logFile, 'a', 0o600);
  if (isRoot()) await logFile.chown(home.account.uid, home.account.gid);
  return logFile;
}

async function rotateLog(logFile: string): Promise<void> {
  try {
    if ((await stat(logFile)).size > LOG_LIMIT_BYTES) await rename(logFile, `${logFile}.1`);
  } catch (error) {
    if (!hasCode(error, 'ENOENT')) throw error;
  }
}

/** Resolves with true once `server` has exited, with false if that takes longer than `limitMs` milliseconds. */
export async function hasExited(server: Server, limitMs: number): Promise<boolean> {
  const timer = new AbortController();
  const late = sleep(limitMs, false, { signal: timer.signal }).catch(() => false);
  try {
    return await Promise.race([server.exited.then(() => true), late]);
  } finally {
    timer.abort();
  }
}
