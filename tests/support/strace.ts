import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { until } from './client.ts';

/** Whether the calls of another process can be watched here. */
export const hasStrace = process.getuid?.() === 0 && spawnSync('strace', ['-V']).status === 0;

const changing = 'creat,mkdir,mkdirat,rename,renameat,renameat2,link,linkat,symlink,symlinkat,unlink,unlinkat,truncate';
const opening = 'open,openat,openat2';

/** Watches which files a process makes, changes, renames or removes. */
export async function watchChanges(pid: number): Promise<{ stop(): Promise<string[]> }> {
  const folder = await mkdtemp(join(tmpdir(), 'stowage-strace-'));
  const log = join(folder, 'log');
  const options = ['-f', '-s', '4096', '-p', String(pid), '-e', `trace=${opening},${changing}`, '-o', log];
  const tracer = spawn('strace', options, { stdio: ['ignore', 'ignore', 'pipe'] });
  let said = '';
  tracer.stderr.on('data', (piece: Buffer) => (said += piece.toString()));
  const exited = once(tracer, 'exit');
  await until(async () => said.includes('attached'));
  return {
    stop: async () => {
      tracer.kill('SIGINT');
      await exited;
      const lines = (await readFile(log, 'utf8')).split('\n');
      await rm(folder, { recursive: true, force: true });
      return [...new Set(lines.flatMap(changedPaths))];
    },
  };
}

function changedPaths(line: string): string[] {
  const call = /^\d+\s+(\w+)\(/.exec(line)?.[1];
  if (call === undefined || (call.startsWith('open') && !/O_(WRONLY|RDWR|CREAT|TRUNC|APPEND)/.test(line))) return [];
  return [...line.matchAll(/"((?:[^"\\]|\\.)*)"/g)].map(([, path = '']) => path);
}
