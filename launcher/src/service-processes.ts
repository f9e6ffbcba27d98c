import { fork } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { serviceNames } from '@stowage/common/rpc/connections';
import type { ServiceName } from '@stowage/common/rpc/connections';
import type { Logger } from '@stowage/common/runtime/logger';
import { StartupError } from '@stowage/common/runtime/run-process';
import type { Environment } from '@stowage/common/runtime/settings';
import { freePorts } from './free-ports.ts';

const loopback = '127.0.0.1';
const startLimitMs = 60_000;
const pollMs = 50;
const restartMs = 1_000;

interface Ports {
  rpc: number;
  bytes: number;
  management: number;
}

/** The six services, each in a process of its own on loopback; one that ends is started again. */
export class ServiceProcesses {
  readonly url: string;
  readonly #environment: Environment;
  readonly #ports: ReadonlyMap<ServiceName, Ports>;
  readonly #children = new Map<ServiceName, ChildProcess>();
  readonly #logger: Logger;
  #stopping = false;

  private constructor(environment: Environment, ports: ReadonlyMap<ServiceName, Ports>, logger: Logger) {
    const host = environment['STOWAGE_HOST'] ?? loopback;
    this.url = `http://${host}:${environment['STOWAGE_PORT'] ?? '8080'}`;
    this.#environment = environment;
    this.#ports = ports;
    this.#logger = logger;
  }

  /** Finds free ports and lays out the settings of each process. */
  static async plan(environment: Environment, databaseUrl: string, logger: Logger): Promise<ServiceProcesses> {
    const free = await freePorts(serviceNames.length * 3);
    const ports = new Map(
      serviceNames.map((name, index) => {
        const [rpc = 0, bytes = 0, management = 0] = free.slice(index * 3, index * 3 + 3);
        return [name, { rpc, bytes, management }];
      }),
    );
    return new ServiceProcesses({ ...environment, STOWAGE_DATABASE_URL: databaseUrl }, ports, logger);
  }

  /** Starts all and waits until each is ready. Throws StartupError where one ends or is not ready in time. */
  async start(): Promise<void> {
    for (const name of serviceNames) this.#launch(name);
    await Promise.all(serviceNames.map((name) => this.#untilReady(name)));
  }

  /** Stops the gateway first, so that it finishes what needs the others. */
  async stop(): Promise<void> {
    this.#stopping = true;
    await this.#end('gateway');
    await this.#end('upload');
    await Promise.all(serviceNames.map((name) => this.#end(name)));
  }

  #launch(name: ServiceName): void {
    const child = fork(fileURLToPath(import.meta.resolve(`../../services/${name}/src/main.ts`)), {
      env: { ...this.#environment, ...this.#settingsOf(name) },
      // A Ctrl-C is for the launcher alone: it stops the services in order.
      detached: true,
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
    this.#children.set(name, child);
    child.once('exit', (code, signal) => {
      if (this.#stopping) return;
      this.#logger.error({ name, code, signal }, 'A service ended; it is started again.');
      setTimeout(() => (this.#stopping ? undefined : this.#launch(name)), restartMs);
    });
  }

  #settingsOf(name: ServiceName): Record<string, string> {
    const own = this.#portsOf(name);
    const rpc = (of: ServiceName): string => `${loopback}:${this.#portsOf(of).rpc}`;
    const bytes = (of: ServiceName): string => `http://${loopback}:${this.#portsOf(of).bytes}`;
    return {
      STOWAGE_LISTEN_HOST: loopback,
      STOWAGE_RPC_PORT: String(own.rpc),
      STOWAGE_BYTES_PORT: String(own.bytes),
      STOWAGE_MANAGEMENT_PORT: String(own.management),
      STOWAGE_CATALOG_RPC: rpc('catalog'),
      STOWAGE_UPLOAD_RPC: rpc('upload'),
      STOWAGE_UPLOAD_BYTES: bytes('upload'),
      STOWAGE_BACKEND_REGISTRY_RPC: rpc('backend-registry'),
      STOWAGE_BACKEND_REGISTRY_BYTES: bytes('backend-registry'),
      STOWAGE_EXPORT_BYTES: bytes('export'),
      STOWAGE_PLACEMENT_RPC: rpc('placement'),
      STOWAGE_EXPORT_RPC: rpc('export'),
    };
  }

  async #untilReady(name: ServiceName): Promise<void> {
    const probe = `http://${loopback}:${this.#portsOf(name).management}/api/system/ready`;
    const deadline = Date.now() + startLimitMs;
    while (!(await isReady(probe))) {
      const child = this.#children.get(name);
      if (child?.exitCode === 1) throw new StartupError(`${name} did not start; its message stands above.`);
      if (Date.now() > deadline) throw new StartupError(`${name} was not ready within ${startLimitMs / 1000} s.`);
      await new Promise((resolve) => setTimeout(resolve, pollMs));
    }
  }

  async #end(name: ServiceName): Promise<void> {
    const child = this.#children.get(name);
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    child.kill('SIGTERM');
    await exited;
  }

  #portsOf(name: ServiceName): Ports {
    const ports = this.#ports.get(name);
    if (!ports) throw new Error(`no ports were planned for ${name}`);
    return ports;
  }
}

async function isReady(probe: string): Promise<boolean> {
  try {
    const answer = await fetch(probe, { signal: AbortSignal.timeout(2_000) });
    await answer.arrayBuffer();
    return answer.status === 200;
  } catch {
    return false;
  }
}
