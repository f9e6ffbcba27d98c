import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { until } from './client.ts';
import { freePort } from './system.ts';
import type { System } from './system.ts';

/** A gateway beside the one of a system of six processes, on the same database and services. */
export interface SecondGateway {
  url: string;
  close(): Promise<void>;
}

const main = join(import.meta.dirname, '../../services/gateway/src/main.ts');

/** Starts it with the settings of the first, but for its ports. */
export async function startSecondGateway(system: System): Promise<SecondGateway> {
  const [port, management, rpc, bytes] = [await freePort(), await freePort(), await freePort(), await freePort()];
  const child = spawn(process.execPath, [main], {
    env: {
      ...(await environmentOf(await system.pidOf('gateway'))),
      STOWAGE_PORT: String(port),
      STOWAGE_MANAGEMENT_PORT: String(management),
      STOWAGE_RPC_PORT: String(rpc),
      STOWAGE_BYTES_PORT: String(bytes),
    },
    // With the channel it ends by itself when the test run dies.
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
  });
  const url = `http://127.0.0.1:${port}`;
  await until(async () => (await fetch(`${url}/api/system/ready`).catch(() => null))?.status === 200, 60_000);
  return {
    url,
    close: async () => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const exited = once(child, 'exit');
      child.kill('SIGTERM');
      await exited;
    },
  };
}

async function environmentOf(pid: number): Promise<Record<string, string>> {
  const text = await readFile(`/proc/${pid}/environ`, 'utf8');
  const pairs = text.split('\0').filter((pair) => pair.includes('='));
  return Object.fromEntries(
    pairs
      .map((pair): [string, string] => [pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1)])
      // The channel of the other process.
      .filter(([name]) => !name.startsWith('NODE_CHANNEL')),
  );
}
