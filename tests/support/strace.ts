import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { until } from './client.ts';

/** Why calls of the system can't be made to fail here; null where they can. */
export const noStrace: string | null =
  process.getuid?.() !== 0
    ? 'needs root'
    : spawnSync('strace', ['-V']).status === 0
      ? null
      : 'strace is not installed on this machine';

/** Settings under which strace's count of calls is that of a process: it counts thread by thread. */
export const oneThreadForFiles = { UV_THREADPOOL_SIZE: '1' };

export interface StraceOptions {
  /** The calls to follow. */
  calls: readonly string[];
  /** What to do to them, as strace's `inject=` says after the name: `error=EIO:when=3`. */
  inject?: string;
  /** Only calls on this file count. */
  path?: string;
  /** Calls that are written to the log beside those, untouched. */
  beside?: readonly string[];
  /** Where the calls are written, one a line, with the file that a descriptor stands for. */
  log?: string;
}

/** Follows every thread of a process until `detach`. */
export async function attachStrace(pid: number, options: StraceOptions): Promise<{ detach(): Promise<void> }> {
  const calls = options.calls.join(',');
  const traced = [...options.calls, ...(options.beside ?? [])].join(',');
  const args = ['-f', '-y', '-s', '4096', '-p', String(pid), '-e', `trace=${traced}`, '-o', options.log ?? '/dev/null'];
  if (options.inject !== undefined) args.push('-e', `inject=${calls}:${options.inject}`);
  if (options.path !== undefined) args.push('-P', options.path);
  const tracer = spawn('strace', args, { stdio: ['ignore', 'ignore', 'pipe'] });
  let said = '';
  tracer.stderr.on('data', (piece: Buffer) => (said += piece.toString()));
  const exited = once(tracer, 'exit');
  await until(async () => {
    if (tracer.exitCode !== null) throw new Error(`strace ended: ${said}`);
    return said.includes('attached');
  });
  return {
    detach: async () => {
      tracer.kill('SIGINT');
      // It may wait for a thread that is no more.
      const timer = setTimeout(() => tracer.kill('SIGKILL'), 1_000);
      await exited;
      clearTimeout(timer);
    },
  };
}
