import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { childrenOf } from './processes.ts';

/** Where the server of a cluster listens, and its processes. */
export interface PostgresProcess {
  postmaster: number;
  url: string;
}

/** The server that runs, or ran last, on the embedded database in `directory`; null where none ever did. */
export async function findPostgres(directory: string): Promise<PostgresProcess | null> {
  const lines = (await readFile(join(directory, 'cluster/postmaster.pid'), 'utf8').catch(() => '')).split('\n');
  const [postmaster, port] = [Number(lines[0]), Number(lines[3])];
  if (!postmaster || !port) return null;
  const password = (await readFile(join(directory, 'password'), 'utf8')).trim();
  return { postmaster, url: `postgres://postgres:${password}@127.0.0.1:${port}/postgres` };
}

/** A postmaster and all its children. */
export async function processesOf({ postmaster }: PostgresProcess): Promise<number[]> {
  return [postmaster, ...(await childrenOf(postmaster))];
}

/** Whether it takes a connection and answers. */
export async function answers(url: string): Promise<boolean> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 2_000, query_timeout: 2_000 });
  client.on('error', () => undefined);
  try {
    await client.connect();
    await client.query('select 1');
    return true;
  } catch {
    return false;
  } finally {
    client.end().catch(() => undefined);
  }
}
