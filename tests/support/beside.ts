import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { freePorts } from './free-ports.ts';
import { until } from './client.ts';
import type { System } from './system.ts';

const repository = join(import.meta.dirname, '../..');

/** One more process of a service, beside the one that a system of six started. */
export interface Beside {
  pid: number;
  process: ChildProcess;
  /** Of a gateway: where it answers. */
  url: string;
  /** What another service is told, so that it asks this process. */
  addresses: Record<string, string>;
  output(): string;
  /** Ends it, however it is, and waits. */
  close(): Promise<void>;
}

/** Starts a second process of `service` with the settings of the first, on ports of its own, and waits until it is ready. */
export async function startBeside(
  system: System,
  service: string,
  environment: Record<string, string> = {},
): Promise<Beside> {
  const first = await environmentOf(await system.pidOf(service));
  const [rpc = 0, bytes = 0, management = 0, port = 0] = await freePorts(4);
  const main = join(repository, `services/${service}/src/main.ts`);
  const child = spawn(process.execPath, [main], {
    cwd: repository,
    env: {
      ...first,
      STOWAGE_RPC_PORT: String(rpc),
      STOWAGE_BYTES_PORT: String(bytes),
      STOWAGE_MANAGEMENT_PORT: String(management),
      STOWAGE_PORT: String(port),
      ...environment,
    },
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  });
  let printed = '';
  for (const stream of [child.stdout, child.stderr])
    stream?.on('data', (piece: Buffer) => (printed += piece.toString()));
  const exited = once(child, 'exit');
  const beside: Beside = {
    pid: child.pid ?? 0,
    process: child,
    url: `http://127.0.0.1:${port}`,
    addresses: addressesOf(service, rpc, bytes),
    output: () => printed,
    close: async () => {
      if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL');
      await exited;
    },
  };
  try {
    await until(async () => {
      if (child.exitCode !== null) throw new Error(`it ended with ${child.exitCode}:\n${printed}`);
      const probe = `http://127.0.0.1:${management}/api/system/ready`;
      return fetch(probe).then(
        ({ status }) => status === 200,
        () => false,
      );
    }, 60_000);
  } catch (error) {
    await beside.close();
    throw error;
  }
  return beside;
}

function addressesOf(service: string, rpc: number, bytes: number): Record<string, string> {
  const name = `STOWAGE_${service.toUpperCase().replace('-', '_')}`;
  return { [`${name}_RPC`]: `127.0.0.1:${rpc}`, [`${name}_BYTES`]: `http://127.0.0.1:${bytes}` };
}

/** The environment of a running process, without the channel to its own launcher. */
/** The settings that a process was started with. */
export async function environmentOf(pid: number): Promise<Record<string, string>> {
  const text = await readFile(`/proc/${pid}/environ`, 'utf8');
  const pairs = text.split('\0').flatMap((line): [string, string][] => {
    const at = line.indexOf('=');
    return at > 0 && !line.startsWith('NODE_CHANNEL_') ? [[line.slice(0, at), line.slice(at + 1)]] : [];
  });
  return Object.fromEntries(pairs);
}
