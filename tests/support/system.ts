import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { chmod, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from './free-ports.ts';
import { launchEnvironment } from './launch-environment.ts';
import { startTestDatabase } from './test-database.ts';

/** The two shapes that the same code runs in. */
export type Mode = 'standalone' | 'services' | 'cluster';

export const adminPassword = 'correct horse battery staple';

/** A whole Stowage, started by its own launcher, as a child process of the test. */
export interface System {
  mode: Mode;
  url: string;
  dataDir: string;
  databaseUrl: string;
  launcher: ChildProcess;
  /** Everything that it printed so far. */
  output(): string;
  /** The process of one service; in standalone mode there is one for all. */
  pidOf(service: string): Promise<number>;
  /** SIGKILL to every process of it at once; the data stays. */
  kill(): Promise<void>;
  /** Starts it again on the same data. */
  restart(environment?: Record<string, string>): Promise<void>;
  /** SIGTERM, and waits; gives the exit code. */
  stop(): Promise<number | null>;
  /** Stops it and removes its data. */
  close(): Promise<void>;
}

const startLimitMs = 60_000;
const repository = join(import.meta.dirname, '../..');

/** Starts Stowage on a database and data folder of its own. */
export async function startSystem(mode: Mode, environment: Record<string, string> = {}): Promise<System> {
  const database = await startTestDatabase();
  const dataDir = await mkdtemp(join(tmpdir(), 'stowage-test-'));
  await chmod(dataDir, 0o755);
  const port = await freePort();
  const settings = {
    STOWAGE_DATABASE_URL: database.url,
    STOWAGE_DATA_DIR: dataDir,
    STOWAGE_PORT: String(port),
    STOWAGE_ADMIN_PASSWORD: adminPassword,
    STOWAGE_DATABASE_CONNECTIONS: '5',
    STOWAGE_LOG_LEVEL: 'warn',
    STOWAGE_REPLICAS: process.env['STOWAGE_REPLICAS'] ?? '1',
    ...environment,
  };
  const cleanUp = async (): Promise<void> => {
    await database.close();
    await rm(dataDir, { recursive: true, force: true });
  };
  let running = await launch(mode, settings).catch(async (error: unknown) => {
    await cleanUp();
    throw error;
  });
  const system: System = {
    mode,
    url: `http://127.0.0.1:${port}`,
    dataDir: settings.STOWAGE_DATA_DIR,
    databaseUrl: database.url,
    get launcher() {
      return running.process;
    },
    output: () => running.output(),
    pidOf: (service) => pidOf(mode, running.process, service),
    kill: () => killAll(running.process),
    restart: async (more = {}) => {
      running = await launch(mode, { ...settings, ...more });
    },
    stop: () => terminate(running.process),
    close: async () => {
      await terminate(running.process);
      await cleanUp();
    },
  };
  return system;
}

interface Running {
  process: ChildProcess;
  output(): string;
}

async function launch(mode: Mode, settings: Record<string, string>): Promise<Running> {
  const main = mode === 'standalone' ? 'launcher/src/standalone.ts' : 'launcher/src/services.ts';
  const child = spawn(process.execPath, [join(repository, main)], {
    cwd: repository,
    env: { ...launchEnvironment(), ...settings },
    // With the channel it ends by itself when the test run dies.
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  });
  let printed = '';
  const ready = Promise.withResolvers<void>();
  const note = (piece: Buffer): void => {
    printed += piece.toString();
    if (printed.includes('Stowage is ready')) ready.resolve();
  };
  child.stdout?.on('data', note);
  child.stderr?.on('data', note);
  child.once('exit', (code) => ready.reject(new Error(`the start ended with ${code}:\n${printed}`)));
  const timer = setTimeout(() => ready.reject(new Error(`not ready in time:\n${printed}`)), startLimitMs);
  await ready.promise.finally(() => clearTimeout(timer));
  return { process: child, output: () => printed };
}

async function terminate(child: ChildProcess): Promise<number | null> {
  if (child.exitCode !== null || child.signalCode !== null) return child.exitCode;
  const exited = once(child, 'exit');
  child.kill('SIGTERM');
  await exited;
  return child.exitCode;
}

async function killAll(launcher: ChildProcess): Promise<void> {
  const pids =
    launcher.pid === undefined ? [] : [launcher.pid, ...(await childrenOf(launcher.pid)).map(({ pid }) => pid)];
  const exited = launcher.exitCode === null && launcher.signalCode === null ? once(launcher, 'exit') : null;
  for (const pid of pids) killIfThere(pid);
  await exited;
}

function killIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
  }
}

async function pidOf(mode: Mode, launcher: ChildProcess, service: string): Promise<number> {
  if (launcher.pid === undefined) throw new Error('it never started');
  if (mode === 'standalone') return launcher.pid;
  const child = (await childrenOf(launcher.pid)).find(({ command }) =>
    command.includes(`services/${service}/src/main.ts`),
  );
  if (!child) throw new Error(`no process of ${service} runs`);
  return child.pid;
}

async function childrenOf(parent: number): Promise<{ pid: number; command: string }[]> {
  const found: { pid: number; command: string }[] = [];
  for (const entry of await readdir('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    const [stat, command] = await Promise.all([read(`/proc/${entry}/stat`), read(`/proc/${entry}/cmdline`)]);
    const ppid = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]);
    if (ppid === parent) found.push({ pid: Number(entry), command });
  }
  return found;
}

/** Processes come and go while /proc is read. */
async function read(path: string): Promise<string> {
  return readFile(path, 'utf8').catch(() => '');
}

/** A name that no other test uses. */
export function uniqueName(prefix = 'name'): string {
  return `${prefix}-${randomBytes(6).toString('hex')}`;
}
