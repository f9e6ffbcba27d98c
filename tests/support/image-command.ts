import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { serviceNames } from '@stowage/common/rpc/connections';
import type { ServiceName } from '@stowage/common/rpc/connections';
import { freePorts } from './free-ports.ts';
import { launchEnvironment } from './launch-environment.ts';

const repository = join(import.meta.dirname, '../..');

/** What the ready probe of a process says. */
export interface Readiness {
  status: number;
  /** Of the process: starting, blocked, ready or draining. */
  state: string;
  detail: string | null;
}

/** A command as the container of a pod runs it. */
export interface RunningCommand {
  /** All that it printed so far. */
  output(): string;
  /** Resolves with the exit code, or the signal. */
  exited: Promise<number | NodeJS.Signals>;
  /** Whether it still runs. */
  lives(): boolean;
  signal(name: NodeJS.Signals): void;
}

/** Runs a command of the image, with `environment` and nothing else set. */
export function runCommand(args: readonly string[], environment: Record<string, string> = {}): RunningCommand {
  const child = spawn(process.execPath, [join(repository, 'launcher/src/command.ts'), ...args], {
    cwd: repository,
    env: { ...launchEnvironment(), ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let printed = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (piece) => (printed += piece));
  return {
    output: () => printed,
    exited: once(child, 'close').then(([code, signal]): number | NodeJS.Signals => code ?? signal),
    lives: () => child.exitCode === null && child.signalCode === null,
    signal: (name) => void child.kill(name),
  };
}

/** The six services as pods would run them, on ports of loopback; each is started when a test says so. */
export class ServicePods {
  readonly running = new Map<ServiceName, RunningCommand>();
  readonly #settings: Record<string, string>;
  readonly #ports: ReadonlyMap<ServiceName, { rpc: number; bytes: number; management: number }>;
  readonly #publicPort: number;

  private constructor(settings: Record<string, string>, ports: readonly number[]) {
    const [publicPort = 0, ...inner] = ports;
    this.#publicPort = publicPort;
    this.#ports = new Map(
      serviceNames.map((name, index) => {
        const [rpc = 0, bytes = 0, management = 0] = inner.slice(3 * index);
        return [name, { rpc, bytes, management }];
      }),
    );
    this.#settings = { ...settings, ...this.#addresses(), STOWAGE_PORT: String(publicPort) };
  }

  static async plan(settings: Record<string, string>): Promise<ServicePods> {
    return new ServicePods(settings, await freePorts(1 + 3 * serviceNames.length));
  }

  /** The public address. */
  get url(): string {
    return `http://127.0.0.1:${this.#publicPort}`;
  }

  start(name: ServiceName, settings: Record<string, string> = {}): RunningCommand {
    const { rpc, bytes, management } = this.#portsOf(name);
    const command = runCommand([name], {
      ...this.#settings,
      STOWAGE_LISTEN_HOST: '127.0.0.1',
      STOWAGE_RPC_PORT: String(rpc),
      STOWAGE_BYTES_PORT: String(bytes),
      STOWAGE_MANAGEMENT_PORT: String(management),
      ...settings,
    });
    this.running.set(name, command);
    return command;
  }

  /** The status of the health probe; null where nothing answers. */
  async health(name: ServiceName): Promise<number | null> {
    return (await this.#probe(name, 'health'))?.status ?? null;
  }

  /** Null where nothing answers. */
  async readiness(name: ServiceName): Promise<Readiness | null> {
    const answer = await this.#probe(name, 'ready');
    if (!answer) return null;
    const { checks }: { checks: [{ status: string; detail: string | null }] } = Object(await answer.json());
    return { status: answer.status, state: checks[0].status, detail: checks[0].detail };
  }

  /** Where a service answers gRPC. */
  rpcAddress(name: ServiceName): string {
    return `127.0.0.1:${this.#portsOf(name).rpc}`;
  }

  /** SIGTERM to all that run; gives how each ended. */
  async stop(): Promise<Record<string, number | NodeJS.Signals>> {
    const ends = [...this.running].map(async ([name, command]) => {
      command.signal('SIGTERM');
      return [name, await command.exited] as const;
    });
    return Object.fromEntries(await Promise.all(ends));
  }

  #addresses(): Record<string, string> {
    const all = [...this.#ports].map(([name, { rpc, bytes }]) => {
      const prefix = `STOWAGE_${name.replace('-', '_').toUpperCase()}`;
      return [
        [`${prefix}_RPC`, `127.0.0.1:${rpc}`],
        [`${prefix}_BYTES`, `http://127.0.0.1:${bytes}`],
      ];
    });
    return Object.fromEntries(all.flat());
  }

  async #probe(name: ServiceName, path: string): Promise<Response | null> {
    const url = `http://127.0.0.1:${this.#portsOf(name).management}/api/system/${path}`;
    return fetch(url, { signal: AbortSignal.timeout(5_000) }).catch(() => null);
  }

  #portsOf(name: ServiceName): { rpc: number; bytes: number; management: number } {
    const ports = this.#ports.get(name);
    if (!ports) throw new Error(`no ports were planned for ${name}`);
    return ports;
  }
}
