import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';

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

/** SIGKILL to a postmaster and all its children at once. */
export async function killPostgres({ postmaster }: PostgresProcess): Promise<void> {
  for (const pid of [postmaster, ...(await childrenOf(postmaster))]) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch (error) {
      if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
    }
  }
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

async function childrenOf(parent: number): Promise<number[]> {
  const found: number[] = [];
  for (const entry of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    const stat = await readFile(`/proc/${entry}/stat`, 'utf8').catch(() => '');
    if (Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]) === parent) found.push(Number(entry));
  }
  return found;
}
