import { describe, test } from '@jest/globals';
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { freePort } from './system.ts';

/** A suite that starts, kills and restarts servers of its own. */
export function withNatsServer(name: string, suite: () => void): void {
  const lack = `${name}: there is no nats-server`;
  if (binary() !== null) describe(name, suite);
  else if (process.env['CI']) {
    test(name, () => {
      throw new Error(lack);
    });
  } else describe.skip(lack, suite);
}

/** STOWAGE_TEST_NATS_SERVER, or what lies in the PATH or where the test cluster puts it; null where there is none. */
function binary(): string | null {
  const folders = [join(homedir(), '.cache/test-cluster/bin'), ...(process.env['PATH'] ?? '').split(delimiter)];
  const named = process.env['STOWAGE_TEST_NATS_SERVER'];
  const candidates = [...(named ? [named] : []), ...folders.map((folder) => join(folder, 'nats-server'))];
  return candidates.find(isProgram) ?? null;
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** A NATS server with JetStream of one test's own, at one address over all restarts. */
export class NatsServer {
  readonly #port: number;
  readonly #folder: string;
  #child: ChildProcess | null = null;

  private constructor(port: number, folder: string) {
    this.#port = port;
    this.#folder = folder;
  }

  static async start(): Promise<NatsServer> {
    const server = new NatsServer(await freePort(), await mkdtemp(join(tmpdir(), 'stowage-test-nats-')));
    await server.run();
    return server;
  }

  get url(): string {
    return `nats://test:${NatsServer.password}@127.0.0.1:${this.#port}`;
  }

  static readonly password = 'a-nats-password-for-tests';

  /** Starts it (again) on what it keeps, and waits until it listens. */
  async run(): Promise<void> {
    const path = binary();
    if (!path) throw new Error('there is no nats-server');
    const options = ['--addr', '127.0.0.1', '--port', String(this.#port), '--jetstream', '--store_dir', this.#folder];
    const child = spawn(path, [...options, '--user', 'test', '--pass', NatsServer.password], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    this.#child = child;
    let printed = '';
    await new Promise<void>((resolve, reject) => {
      child.once('exit', () => reject(new Error(`nats-server ended:\n${printed}`)));
      child.stderr.on('data', (piece: Buffer) => {
        printed += piece.toString();
        if (printed.includes('Server is ready')) resolve();
      });
    });
  }

  /** SIGSTOP or SIGCONT: it hangs, or goes on. */
  signal(signal: 'SIGSTOP' | 'SIGCONT'): void {
    this.#child?.kill(signal);
  }

  /** SIGKILL, and waits. */
  async kill(): Promise<void> {
    const child = this.#child;
    this.#child = null;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    child.kill('SIGKILL');
    await exited;
  }

  /** Loses all that it keeps; only while it does not run. */
  async wipe(): Promise<void> {
    await rm(this.#folder, { recursive: true, force: true });
  }

  async close(): Promise<void> {
    await this.kill();
    await this.wipe();
  }
}
