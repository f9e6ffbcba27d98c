import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Receiving } from './receive.ts';

/** A bare server in a process of its own. */
export interface Baseline {
  port: number;
  pid: number;
  close(): Promise<void>;
}

/** A bare server with the folder that its files are in. */
export interface FileBaseline extends Baseline {
  directory: string;
}

/** Starts one that keeps files in a folder of its own below `scratch`. */
export async function startFileServer(scratch: string, mode: Receiving): Promise<FileBaseline> {
  const directory = join(scratch, `node-${mode}`);
  await mkdir(directory, { recursive: true });
  return { ...(await start('file-server.ts', [mode, directory])), directory };
}

/** Starts one that answers each request with one prepared point SELECT. */
export function startSelectServer(url: string, text: string, how: 'pooled' | 'pipelined'): Promise<Baseline> {
  return start('select-server.ts', [url, text, how]);
}

/** Starts an S3 server that lists the blobs of a seeded directory as if it had them. */
export function startBucketServer(directory: number, count: number, bytes: number): Promise<Baseline> {
  return start('bucket-server.ts', [directory, count, bytes].map(String));
}

/** Starts one that does nothing. */
export function startEmptyServer(): Promise<Baseline> {
  return start('empty-server.ts', []);
}

async function start(file: string, args: readonly string[]): Promise<Baseline> {
  const child = fork(join(import.meta.dirname, file), args);
  const [message] = await Promise.race([
    once(child, 'message'),
    once(child, 'exit').then(([code]) => Promise.reject(new Error(`${file} ended with ${String(code)}`))),
  ]);
  const { port } = Object(message) as { port: unknown };
  if (typeof port !== 'number' || child.pid === undefined) throw new Error(`${file} did not tell its port`);
  return {
    port,
    pid: child.pid,
    close: async () => {
      if (child.exitCode !== null) return;
      const exited = once(child, 'exit');
      child.disconnect();
      await exited;
    },
  };
}
