import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { launchEnvironment } from './launch-environment.ts';
import type { Mode } from './system.ts';

const repository = join(import.meta.dirname, '../..');

/** A Stowage started as a person starts it: nothing set but what the test names, its own PostgreSQL. */
export interface PlainStart {
  process: ChildProcess;
  output(): string;
  /** Resolves when it says that it is ready; throws where it ends before. */
  ready: Promise<void>;
  /** The exit code, or the signal. */
  exited: Promise<number | NodeJS.Signals>;
  signal(name: NodeJS.Signals): void;
  /** SIGKILL to its whole process group, as a terminal that is closed the hard way. */
  killGroup(): Promise<void>;
}

export interface Account {
  uid: number;
  gid: number;
}

/** Starts the launcher of a mode with `environment` and nothing else set, in a process group of its own. */
export function startPlainly(mode: Mode, environment: Record<string, string>, account?: Account): PlainStart {
  const main = mode === 'standalone' ? 'launcher/src/standalone.ts' : 'launcher/src/services.ts';
  const child = spawn(process.execPath, [join(repository, main)], {
    cwd: repository,
    env: { ...launchEnvironment(), ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
    ...account,
  });
  let printed = '';
  const ready = Promise.withResolvers<void>();
  const note = (piece: Buffer): void => {
    printed += piece.toString();
    if (printed.includes('Stowage is ready')) ready.resolve();
  };
  child.stdout.on('data', note);
  child.stderr.on('data', note);
  const exited = once(child, 'close').then(([code, signal]): number | NodeJS.Signals => {
    ready.reject(new Error(`it ended with ${code ?? signal}:\n${printed}`));
    return code ?? signal;
  });
  // Who waits for the end only is not to be told that it never was ready.
  ready.promise.catch(() => undefined);
  return {
    process: child,
    output: () => printed,
    ready: ready.promise,
    exited,
    signal: (name) => void child.kill(name),
    killGroup: async () => {
      if (child.pid !== undefined && child.exitCode === null && child.signalCode === null)
        process.kill(-child.pid, 'SIGKILL');
      await exited;
    },
  };
}

/** The process of the embedded PostgreSQL of a data folder; null where none runs. */
export async function postmasterOf(dataDir: string): Promise<number | null> {
  for (const entry of await readdir('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    const command = await readFile(`/proc/${entry}/cmdline`, 'utf8').catch(() => '');
    const [program = '', option, directory = ''] = command.split('\0');
    if (program.endsWith('/postgres') && option === '-D' && directory.startsWith(dataDir)) return Number(entry);
  }
  return null;
}
