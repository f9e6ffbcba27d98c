import { setTimeout as sleep } from 'node:timers/promises';
import { prepareBinaries } from './postgres/binaries.ts';
import { ensureCluster, readPassword } from './postgres/cluster.ts';
import { exists, until } from './postgres/files.ts';
import { type Home, findHome } from './postgres/home.ts';
import { findPostmaster, isPostmasterOf, removeStalePidFile, stopPostmaster } from './postgres/postmaster.ts';
import { type Server, ServerFailed, hasExited, launch, logTail, socketOf } from './postgres/server.ts';
import { type RunningServer, Supervisor } from './postgres/supervisor.ts';

const START_LIMIT_MS = 300_000;
// A postmaster that lost its pid file notices within a minute and ends.
const RETRY_LIMIT_MS = 90_000;
const QUIET_MS = 3_000;
const RETRY_PAUSE_MS = 50;
const LOOK_MS = 500;

export interface EmbeddedPostgresOptions {
  /** The folder for the cluster, its password and its log; created if missing. */
  readonly directory: string;
  readonly log: (message: string) => void;
  /** PostgreSQL settings beyond the usual ones, for a server that is started here; one that is adopted keeps its own. */
  readonly settings?: Readonly<Record<string, string>>;
}

export interface EmbeddedPostgres {
  /** The superuser's connection URL, for as long as it is kept running. It holds the password: do not log it. */
  readonly url: string;
  /** As `url`, by its Unix socket where it has one: a query costs a third less than over TCP. */
  readonly localUrl: string;
  /** Whether the server was running already, left behind by a process that was killed. */
  readonly adopted: boolean;
  /** Starts the server again, at the same address, whenever it ends without `stop`. */
  keepRunning(): void;
  /** Stops the server within 8 s, or kills it (no committed data is lost). Close all connections first. */
  stop(): Promise<void>;
}

interface BroughtUp extends RunningServer {
  readonly adopted: boolean;
}

/**
 * Runs the PostgreSQL that npm brought along on the cluster in `options.directory`, which is created at the first start.
 * Returns when the server accepts connections. It listens on 127.0.0.1 only, outlives this process if that is killed,
 * and is then adopted by the next start. Throws, with the last lines of PostgreSQL's log, when it cannot be started.
 */
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const { log } = options;
  const home = await findHome(options.directory, log);
  const first = await bringUp(home, options);
  const supervisor = new Supervisor(first, { log, bringUp: (port) => bringUpAt(port, home, options) });
  const url = urlFor(first.port, await readPassword(home));
  const hasSocket = await exists(socketOf(home.cluster, first.port));
  return {
    url,
    localUrl: hasSocket ? `${url}?host=${encodeURIComponent(home.cluster)}` : url,
    adopted: first.adopted,
    keepRunning: () => supervisor.keepRunning(),
    stop: () => supervisor.stop(),
  };
}

async function bringUp(home: Home, { log, settings = {} }: EmbeddedPostgresOptions, port?: number): Promise<BroughtUp> {
  if (await exists(home.cluster)) {
    const adopted = await adopt(home, log);
    if (adopted !== undefined) return adopted;
  }
  const binaries = await prepareBinaries(home.account, home.directory);
  if (!(await exists(home.cluster))) log(`creating the database in ${home.cluster}`);
  await ensureCluster(home, binaries, settings['fsync'] !== 'off');
  await home.settled();
  const begin = performance.now();
  for (let told = false; ;) {
    const adopted = await adopt(home, log);
    if (adopted !== undefined) return adopted;
    try {
      return started(home, await launch(home, binaries, settings, { limitMs: START_LIMIT_MS, port }), log);
    } catch (error) {
      const elapsedMs = performance.now() - begin;
      if (!(error instanceof ServerFailed) || !error.passing || elapsedMs > RETRY_LIMIT_MS) throw error;
      if (elapsedMs > QUIET_MS && !told) log(`still trying: ${error.message}`);
      told ||= elapsedMs > QUIET_MS;
    }
    await sleep(RETRY_PAUSE_MS);
  }
}

/** As bringUp, where clients know the address. Never begins an empty database in the place of one that was lost. */
async function bringUpAt(port: number, home: Home, options: EmbeddedPostgresOptions): Promise<BroughtUp> {
  if (!(await exists(home.cluster))) throw new Error(`${home.cluster} is gone: bring it back`);
  const running = await bringUp(home, options, port);
  if (running.port === port) return running;
  throw new Error(`another process runs it on port ${running.port}, not on ${port}`);
}

/** Takes over the postmaster that runs on `home`, waiting for it to be ready. Undefined: there is none (any more). */
async function adopt(home: Home, log: (message: string) => void): Promise<BroughtUp | undefined> {
  let found = await findPostmaster(home.cluster);
  const settled = await until(async () => {
    found = await findPostmaster(home.cluster);
    return found.state === 'running' ? found.status === 'ready' : found.state !== 'unwritten';
  }, START_LIMIT_MS);
  if (!settled) {
    const tail = await logTail(home.logFile);
    throw new Error(`PostgreSQL runs, but is not ready after ${START_LIMIT_MS / 1000} s\n${home.logFile}:\n${tail}`);
  }
  if (found.state === 'stale') await removeStalePidFile(home.cluster, found.text);
  if (found.state !== 'running') return undefined;
  const { pid, port } = found;
  log(`adopted the running PostgreSQL (process ${pid}, port ${port})`);
  return {
    port,
    adopted: true,
    // Not a child of this process, so nobody tells when it ends.
    async ended(signal) {
      while (await isPostmasterOf(pid, home.cluster)) await sleep(LOOK_MS, undefined, { signal, ref: false });
      return 'it is gone';
    },
    stop: async () => stopPostmaster(pid, home.cluster),
  };
}

function started(home: Home, server: Server, log: (message: string) => void): BroughtUp {
  const { pid, port } = server;
  let stopping = false;
  void server.exited.then((how) => {
    if (!stopping) log(`PostgreSQL (process ${pid}) ended unexpectedly: ${how}; see ${home.logFile}`);
  });
  log(`PostgreSQL runs (process ${pid}, port ${port})`);
  return {
    port,
    adopted: false,
    async ended(signal) {
      const { promise: stopped, reject } = Promise.withResolvers<never>();
      signal.addEventListener('abort', () => reject(new Error('it is being stopped')), { once: true });
      return Promise.race([server.exited, stopped]);
    },
    async stop() {
      stopping = true;
      await stopPostmaster(pid, home.cluster, async (limitMs) => hasExited(server, limitMs));
    },
  };
}

function urlFor(port: number, password: string): string {
  return `postgres://postgres:${password}@127.0.0.1:${port}/postgres`;
}
