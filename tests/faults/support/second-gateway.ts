import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Client, until } from '../../support/client.ts';
import { freePort } from '../../support/system.ts';
import type { System } from '../../support/system.ts';

/** Another gateway process beside the system's own, in front of the same services. */
export interface SecondGateway {
  url: string;
  pid: number;
  close(): Promise<void>;
}

const main = join(import.meta.dirname, '../../../services/gateway/src/main.ts');

/** Starts one with the settings of the first, on ports of its own. */
export async function startSecondGateway(system: System): Promise<SecondGateway> {
  const first = await readFile(`/proc/${await system.pidOf('gateway')}/environ`, 'utf8');
  const settings = first
    .split('\0')
    .map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]);
  const port = await freePort();
  const environment: Record<string, string> = Object.fromEntries(
    settings.filter(([name]) => name && !name.startsWith('NODE_')),
  );
  const own = { STOWAGE_PORT: port, STOWAGE_RPC_PORT: 0, STOWAGE_BYTES_PORT: 0, STOWAGE_MANAGEMENT_PORT: 0 };
  for (const [name, value] of Object.entries(own)) environment[name] = String(value || (await freePort()));
  const child = spawn(process.execPath, [main], { env: environment, stdio: ['ignore', 'ignore', 'inherit'] });
  const exited = once(child, 'exit');
  const url = `http://127.0.0.1:${port}`;
  const close = async (): Promise<void> => {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGTERM');
    await exited;
  };
  const client = new Client(url);
  try {
    await until(async () => (await client.get('/api/system/ready').catch(() => null))?.status === 200);
  } catch (error) {
    await close();
    throw error;
  }
  return { url, pid: child.pid ?? 0, close };
}
