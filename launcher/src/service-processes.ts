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

/** One process of a service. */
interface Member {
  name: ServiceName;
  ports: Ports;
  child: ChildProcess | null;
}

/**
 * The six services, each in as many processes of its own on loopback as are asked for, and one gateway; a process that
 * ends is started again.
 */
export class ServiceProcesses {
  readonly url: string;
  readonly count: number;
  readonly #environment: Environment;
  readonly #members: readonly Member[];
  readonly #logger: Logger;
  #stopping = false;

  private constructor(environment: Environment, members: readonly Member[], logger: Logger) {
    const host = environment['STOWAGE_HOST'] ?? loopback;
    this.url = `http://${host}:${environment['STOWAGE_PORT'] ?? '8080'}`;
    this.#environment = environment;
    this.#members = members;
    this.count = members.length;
    this.#logger = logger;
  }

  /** Finds free ports and lays out the settings of each process, `replicas` for each service but the gateway. */
  static async plan(
    environment: Environment,
    databaseUrl: string,
    replicas: number,
    logger: Logger,
  ): Promise<ServiceProcesses> {
    const names = serviceNames.flatMap((name) => Array.from({ length: name === 'gateway' ? 1 : replicas }, () => name));
    const free = await freePorts(names.length * 3);
    const members = names.map((name, index): Member => {
      const [rpc = 0, bytes = 0, management = 0] = free.slice(index * 3, index * 3 + 3);
      return { name, ports: { rpc, bytes, management }, child: null };
    });
    return new ServiceProcesses({ ...environment, STOWAGE_DATABASE_URL: databaseUrl }, members, logger);
  }

  /** Starts all and waits until each is ready. Throws StartupError where one ends or is not ready in time. */
  async start(): Promise<void> {
    for (const member of this.#members) this.#launch(member);
    await Promise.all(this.#members.map((member) => this.#untilReady(member)));
  }

  /** Stops the gateway first, so that it finishes what needs the others. */
  async stop(): Promise<void> {
    this.#stopping = true;
    await this.#end(this.#named('gateway'));
    await this.#end(this.#named('upload'));
    await this.#end(this.#members);
  }

  #launch(member: Member): void {
    const { name } = member;
    const child = fork(fileURLToPath(import.meta.resolve(`../../services/${name}/src/main.ts`)), {
      env: { ...this.#environment, ...this.#settingsOf(member) },
      // A Ctrl-C is for the launcher alone: it stops the services in order.
      detached: true,
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
    member.child = child;
    child.once('exit', (code, signal) => {
      if (this.#stopping) return;
      this.#logger.error({ name, code, signal }, 'A service ended; it is started again.');
      setTimeout(() => (this.#stopping ? undefined : this.#launch(member)), restartMs);
    });
  }

  #settingsOf({ ports }: Member): Record<string, string> {
    const rpc = (of: ServiceName): string => {
      const addresses = this.#named(of).map((member) => `${loopback}:${member.ports.rpc}`);
      return addresses.length === 1 ? addresses.join() : `ipv4:${addresses.join(',')}`;
    };
    const bytes = (of: ServiceName): string =>
      this.#named(of)
        .map((member) => `http://${loopback}:${member.ports.bytes}`)
        .join(',');
    return {
      STOWAGE_LISTEN_HOST: loopback,
      STOWAGE_RPC_PORT: String(ports.rpc),
      STOWAGE_BYTES_PORT: String(ports.bytes),
      STOWAGE_MANAGEMENT_PORT: String(ports.management),
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

  async #untilReady(member: Member): Promise<void> {
    const { name, ports } = member;
    const probe = `http://${loopback}:${ports.management}/api/system/ready`;
    const deadline = Date.now() + startLimitMs;
    for (;;) {
      const { status, detail } = await ask(probe);
      if (status === 'ready') return;
      if (status === 'blocked') throw new StartupError(`${name} can not start. ${detail}`);
      if (member.child?.exitCode === 1) throw new StartupError(`${name} did not start; its message stands above.`);
      if (Date.now() > deadline)
        throw new StartupError(`${name} was not ready within ${startLimitMs / 1000} s. ${detail}`.trim());
      await new Promise((resolve) => setTimeout(resolve, pollMs));
    }
  }

  async #end(members: readonly Member[]): Promise<void> {
    await Promise.all(members.map(({ child }) => endProcess(child)));
  }

  #named(name: ServiceName): Member[] {
    return this.#members.filter((member) => member.name === name);
  }
}

async function endProcess(child: ChildProcess | null): Promise<void> {
  if (!child || child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  child.kill('SIGTERM');
  await exited;
}

/** How a process does, and what its start waits for; empty where it does not say. */
async function ask(probe: string): Promise<{ status: string; detail: string }> {
  try {
    const answer = await fetch(probe, { signal: AbortSignal.timeout(2_000) });
    const { checks }: { checks?: { status?: unknown; detail?: unknown }[] } = Object(await answer.json());
    const { status, detail } = checks?.[0] ?? {};
    return { status: String(status ?? ''), detail: String(detail ?? '') };
  } catch {
    return { status: '', detail: '' };
  }
}
