import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { startEmbeddedPostgres } from '@stowage/launcher/embedded-postgres';
import { postmasterOf } from '../system/stowage.ts';

/** The same PostgreSQL as Stowage brings, with the same settings and nothing in it but a table of objects. */
export interface BarePostgres {
  url: string;
  pool: pg.Pool;
  postmaster: number;
  /** Finds one object by its key. */
  selectText: string;
  /** Finds a page of a hundred, in order of their keys. */
  pageText: string;
  insertText: string;
  keys: readonly string[];
  close(): Promise<void>;
}

const objects = 100_000;

/** Starts a server of its own below `scratch`. */
export async function startBarePostgres(scratch: string): Promise<BarePostgres> {
  const directory = join(scratch, 'bare-postgres');
  await mkdir(directory, { recursive: true, mode: 0o755 });
  const server = await startEmbeddedPostgres({ directory, log: () => undefined });
  const pool = new pg.Pool({ connectionString: server.localUrl, max: 1 });
  pool.on('error', () => undefined);
  await pool.query(`create table objects (key text primary key, name text not null, size bigint not null,
    created_at timestamptz not null default now())`);
  await pool.query(
    `insert into objects (key, name, size) select 'key-' || n, 'name-' || n, n from generate_series(1, $1::int) n`,
    [objects],
  );
  await pool.query(`create table inserted (id bigint generated always as identity primary key, name text not null,
    created_at timestamptz not null default now())`);
  await pool.query('vacuum analyze');
  return {
    url: server.localUrl,
    pool,
    postmaster: await postmasterOf(pool),
    selectText: 'select key, name, size, created_at from objects where key = $1',
    pageText: 'select key, name, size, created_at from objects where key >= $1 order by key limit 100',
    insertText: 'insert into inserted (name) values ($1)',
    keys: Array.from({ length: 1_000 }, (_, index) => `key-${((index * 7_919) % objects) + 1}`),
    close: async () => {
      await pool.end();
      await server.stop();
      await rm(directory, { recursive: true, force: true });
    },
  };
}
