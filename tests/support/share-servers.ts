import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { access, constants, glob, mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { serverKinds } from './server-kinds.ts';
import type { ServerKind } from './server-kinds.ts';
import { freePort } from './free-ports.ts';

export type KindName = keyof typeof serverKinds;

const startLimitMs = 60_000;
const repository = join(import.meta.dirname, '../..');

/** A server that was started by us, with its data in a folder of its own. */
export interface OwnServer {
  /** The variables through which tests know it, as those of the shared one. */
  settings: Record<string, string>;
  /** Its address, with user and password where it has them. */
  url: string;
  process: ChildProcess;
  /** SIGKILL; the data stays. */
  kill(): Promise<void>;
  /** Starts it again, on the same data and port. */
  restart(): Promise<void>;
  /** Loses all that it keeps; only while it does not run. */
  wipe(): Promise<void>;
  /** Stops it and removes its data. */
  close(): Promise<void>;
}

const shared: OwnServer[] = [];
const missing = new Set<ServerKind>();

/**
 * For jest's set-up: one server of each kind for the whole run, as the environment names it, else started from a program on
 * PATH or in the cache of the test cluster.
 */
export async function shareServers(): Promise<void> {
  await Promise.all(Object.values(serverKinds).map(share));
}

/** For jest's teardown: ends what shareServers started, and names the suites that were left out for lack of a server. */
export async function endServers(): Promise<void> {
  for (const kind of missing) await tellLeftOut(kind);
  await Promise.all(shared.splice(0).map((server) => server.close()));
}

/** A server of its own for a test that kills it, or that runs it in another way. Throws where there is no program for it. */
export async function startServer(name: KindName, otherwise: Partial<ServerKind> = {}): Promise<OwnServer> {
  const kind = { ...serverKinds[name], ...otherwise };
  const program = await findProgram(kind.program);
  if (program === null)
    throw new Error(`there may be a ${name} server, but there is no ${kind.program} to start one by`);
  return start(kind, program);
}

async function share(kind: ServerKind): Promise<void> {
  if (process.env[kind.variable]) return;
  const program = await findProgram(kind.program);
  if (program === null) {
    missing.add(kind);
    return;
  }
  const server = await start(kind, program);
  shared.push(server);
  Object.assign(process.env, server.settings);
}

async function start(kind: ServerKind, program: string): Promise<OwnServer> {
  const folder = await mkdtemp(join(tmpdir(), 'stowage-server-'));
  const data = join(folder, 'data');
  await mkdir(data);
  const port = await freePort();
  const launch = async (): Promise<ChildProcess> => {
    const child = spawn(program, kind.arguments(folder, port), {
      env: { ...process.env, ...kind.environment },
      stdio: 'ignore',
    });
    await untilAnswers(kind, child, port).catch(async (error: unknown) => {
      await end(child, 'SIGKILL');
      throw error;
    });
    return child;
  };
  let running = await launch();
  const settings = kind.settings(port);
  return {
    settings,
    url: settings[kind.variable] ?? '',
    get process() {
      return running;
    },
    kill: () => end(running, 'SIGKILL'),
    restart: async () => {
      running = await launch();
    },
    wipe: async () => {
      await rm(data, { recursive: true, force: true });
      await mkdir(data);
    },
    close: async () => {
      await end(running, 'SIGKILL');
      await rm(folder, { recursive: true, force: true });
    },
  };
}

async function untilAnswers(kind: ServerKind, child: ChildProcess, port: number): Promise<void> {
  const ended = once(child, 'exit').then(() => {
    throw new Error(`${kind.program} ended before it answered`);
  });
  // It may well end later.
  ended.catch(() => undefined);
  const late = AbortSignal.timeout(startLimitMs);
  while (!(await Promise.race([kind.answers(port).catch(() => false), ended]))) {
    if (late.aborted) throw new Error(`${kind.program} does not answer`);
    await setTimeout(50);
  }
}

async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, 'exit');
  child.kill(signal);
  await exit;
}

/** Where a program is: on PATH, or where ../shared/cluster and .ci/run keep what they compiled. */
async function findProgram(name: string): Promise<string | null> {
  const cache = process.env['CLUSTER_CACHE'] ?? join(homedir(), '.cache/test-cluster');
  for (const folder of [...(process.env['PATH'] ?? '').split(delimiter), join(cache, 'bin')]) {
    const file = join(folder, name);
    const found = await access(file, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (found) return file;
  }
  return null;
}

async function tellLeftOut({ program, variable, used }: ServerKind): Promise<void> {
  const suites: string[] = [];
  for await (const file of glob('{services,tests}/**/*.test.ts', {
    cwd: repository,
    exclude: ['**/node_modules/**'],
  })) {
    if ((await readFile(join(repository, file), 'utf8')).includes(used)) suites.push(file);
  }
  if (suites.length === 0) return;
  process.stderr.write(`Left out, as there is no ${program} on PATH and no ${variable}: ${suites.sort().join(', ')}\n`);
}
