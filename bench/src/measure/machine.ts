import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { availableParallelism, cpus, release, totalmem } from 'node:os';
import type pg from 'pg';

/** Where and with what a run was made. */
export interface Machine {
  date: string;
  commit: string;
  processor: string;
  cores: number;
  /** Whether the processor computes SHA-256 by itself, which decides how fast an upload can be. */
  shaExtensions: boolean;
  memoryGiB: number;
  kernel: string;
  fileSystem: string;
  node: string;
  postgres: string;
}

/** Looks around; `folder` is where the data goes. */
export async function describeMachine(folder: string, database: pg.Pool): Promise<Machine> {
  const { rows } = await database.query<{ version: string }>("select current_setting('server_version') as version");
  const processor = readFileSync('/proc/cpuinfo', 'utf8');
  return {
    date: new Date().toISOString(),
    commit: tell('git', ['rev-parse', '--short', 'HEAD']),
    processor: cpus()[0]?.model.trim() ?? 'unknown',
    cores: availableParallelism(),
    shaExtensions: /\b(sha_ni|sha2)\b/.test(processor),
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    kernel: release(),
    fileSystem: tell('df', ['--output=fstype', folder]).split('\n').at(-1) ?? 'unknown',
    node: process.version,
    postgres: rows[0]?.version ?? 'unknown',
  };
}

function tell(program: string, args: readonly string[]): string {
  try {
    return execFileSync(program, args, { encoding: 'utf8', cwd: import.meta.dirname }).trim();
  } catch {
    return 'unknown';
  }
}
