import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, open, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { startEmbeddedPostgres } from '@stowage/launcher/embedded-postgres';
import { freePort } from '@stowage/launcher/free-ports';
import { parentOf } from '../measure/processes.ts';
import type { Processes } from '../measure/processes.ts';

/** The two shapes that the same code runs in. */
export type Mode = 'one' | 'six';

const scripts = { one: 'start', six: 'start:services' } as const;
const repository = join(import.meta.dirname, '../../..');
const password = 'correct horse battery staple';
const startLimitMs = 60_000;
const pollMs = 5;

/** A whole Stowage in production settings, with its embedded PostgreSQL. */
export interface Stowage {
  mode: Mode;
  port: number;
  token: string;
  processes: Processes;
  /** As the superuser, for rows that would take too long through the interface. */
  database: pg.Pool;
  /** From the start of the launcher to the first ready answer, in ms. */
  startMs: number;
  /** Stops it; the data stays. */
  stop(): Promise<void>;
  /** Stops it and removes its data. */
  close(): Promise<void>;
}

/** Where to start one, and how. */
export interface StartOptions {
  mode: Mode;
  /** Its data and what Node keeps of compiled code go below; on the same folder and name again it finds what it kept. */
  scratch: string;
  name: string;
  /** Where each process leaves a CPU profile when it stops. */
  profile?: string | null;
  /** In place of the one that all starts of a run share. */
  compileCache?: string;
  /** Where local backends may lie beside its own data. */
  localRoots?: string;
}

/** Starts one as `npm start` does. */
export async function startStowage(options: StartOptions): Promise<Stowage> {
  const { mode, scratch, name } = options;
  const dataDir = join(scratch, `stowage-${name}-${mode}`);
  await mkdir(dataDir, { recursive: true });
  // PostgreSQL runs under another account when root starts it.
  await chmod(dataDir, 0o755);
  const port = await freePort();
  const { child, startMs } = await launch(options, dataDir, port);
  const stop = (): Promise<void> => terminate(child);
  try {
    const token = await logIn(port);
    const database = await openDatabase(dataDir);
    const stopAll = async (): Promise<void> => {
      await database.end();
      await stop();
    };
    return {
      mode,
      port,
      token,
      processes: { node: [child.pid ?? 0], postgres: await postmasterOf(database) },
      database,
      startMs,
      stop: stopAll,
      close: async () => {
        await stopAll();
        await rm(dataDir, { recursive: true, force: true });
      },
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function launch(
  { mode, scratch, profile, compileCache, localRoots }: StartOptions,
  dataDir: string,
  port: number,
): Promise<{ child: ChildProcess; startMs: number }> {
  const profiling = profile ? ['--cpu-prof', `--cpu-prof-dir=${profile}`] : [];
  const logFile = join(dataDir, 'bench.log');
  const log = await open(logFile, 'a');
  const nodeArguments = await argumentsOf(scripts[mode]);
  const started = performance.now();
  const child = spawn(process.execPath, [...profiling, ...nodeArguments], {
    cwd: repository,
    env: {
      PATH: process.env['PATH'],
      HOME: process.env['HOME'],
      // As scripts/with-dependencies.sh has it.
      NODE_COMPILE_CACHE: compileCache ?? join(scratch, 'compile-cache'),
      STOWAGE_DATA_DIR: dataDir,
      STOWAGE_PORT: String(port),
      STOWAGE_ADMIN_PASSWORD: password,
      ...(localRoots === undefined ? {} : { STOWAGE_LOCAL_ROOTS: localRoots }),
    },
    // With the channel it ends by itself when this process dies.
    stdio: ['ignore', log.fd, log.fd, 'ipc'],
  });
  await log.close();
  while (!(await isReady(port))) {
    const late = performance.now() - started > startLimitMs;
    if (late) await terminate(child);
    if (late || child.exitCode !== null)
      throw new Error(`Stowage did not start (${mode}):\n${await readFile(logFile, 'utf8')}`);
    await new Promise((resolve) => setTimeout(resolve, pollMs));
  }
  return { child, startMs: performance.now() - started };
}

/** What a script of package.json gives to Node. */
async function argumentsOf(script: string): Promise<string[]> {
  const manifest: unknown = JSON.parse(await readFile(join(repository, 'package.json'), 'utf8'));
  const { scripts: all = {} } = Object(manifest) as { scripts?: Record<string, string> };
  const given = /^sh scripts\/with-dependencies\.sh production node (.+)$/.exec(all[script] ?? '')?.[1];
  if (given === undefined) throw new Error(`package.json starts Node in another way by "${script}" now`);
  return given.split(' ');
}

async function isReady(port: number): Promise<boolean> {
  try {
    const answer = await fetch(`http://127.0.0.1:${port}/api/system/ready`);
    await answer.arrayBuffer();
    return answer.status === 200;
  } catch {
    return false;
  }
}

async function logIn(port: number): Promise<string> {
  const answer = await fetch(`http://127.0.0.1:${port}/api/auth/login`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ username: 'admin', password }),
  });
  const body: unknown = await answer.json();
  if (typeof body !== 'object' || body === null || !('access_token' in body) || typeof body.access_token !== 'string')
    throw new Error(`the login was answered with ${answer.status}`);
  return body.access_token;
}

/** Stowage runs the server already, so this only finds out where it is. */
async function openDatabase(dataDir: string): Promise<pg.Pool> {
  const { localUrl: url } = await startEmbeddedPostgres({ directory: join(dataDir, 'postgres'), log: () => undefined });
  const pool = new pg.Pool({ connectionString: url, max: 2 });
  pool.on('error', () => undefined);
  return pool;
}

/** The postmaster is the parent of every backend. */
export async function postmasterOf(database: pg.Pool): Promise<number> {
  const { rows } = await database.query<{ pid: number }>('select pg_backend_pid() as pid');
  return parentOf(rows[0]?.pid ?? 0);
}

async function terminate(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  child.kill('SIGTERM');
  await exited;
}
