import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { attachStrace } from './strace.ts';

const opening = ['open', 'openat', 'openat2'];
const changing =
  'creat mkdir mkdirat rename renameat renameat2 link linkat symlink symlinkat unlink unlinkat truncate'.split(' ');

/** Watches which files a process makes, changes, renames or removes. */
export async function watchChanges(pid: number): Promise<{ stop(): Promise<string[]> }> {
  const folder = await mkdtemp(join(tmpdir(), 'stowage-strace-'));
  const log = join(folder, 'log');
  const tracer = await attachStrace(pid, { calls: [...opening, ...changing], log });
  return {
    stop: async () => {
      await tracer.detach();
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
