import type { ClientBase } from 'pg';

/** The tables that hold one document's records between reading it and importing it; columns are named as in the live tables. */
export const stagedTables = ['nodes', 'blobs', 'replicas', 'backends', 'policies'] as const;
export type StagedTable = (typeof stagedTables)[number];

// `position` is the place of the record in its section, for pointers. What a record may be is checked while it is read.
const columns: Readonly<Record<StagedTable, string>> = {
  nodes: `
    id uuid not null, parent_id uuid, kind text collate "C" not null, name text collate "C" not null, version bigint not null,
    created_at timestamptz(3) not null, updated_at timestamptz(3) not null, deleted_at timestamptz(3),
    purge_at timestamptz(3), purged_at timestamptz(3), blob_id uuid, size bigint, media_type text, file_class text`,
  blobs: `
    id uuid not null, size bigint not null, sha256 bytea, chunk_crc32c bytea not null, created_at timestamptz(3) not null,
    delete_after timestamptz(3)`,
  replicas: `
    blob_id uuid not null, backend_id uuid not null, key text not null, state text not null,
    verified_at timestamptz(3), created_at timestamptz(3) not null`,
  backends: `
    id uuid not null, name text collate "C" not null, type text not null, enabled boolean not null,
    is_default boolean not null, marked boolean not null, config jsonb not null, secret_fields text[] not null,
    version bigint not null, created_at timestamptz(3) not null, updated_at timestamptz(3) not null`,
  policies: `
    file_class text collate "C" not null, replicas integer not null, sync_replicas integer not null,
    backends uuid[] not null, version bigint not null, updated_at timestamptz(3) not null`,
};

/** `export.staged_7_nodes`. */
export function stagedTable(number: number, table: StagedTable): string {
  if (!Number.isSafeInteger(number)) throw new Error('not the number of staged tables');
  return `export.staged_${number}_${table}`;
}

/** Two numbers make a lock; this one says that it is about staged tables. */
const lockClass = 0x53746167;

/**
 * Chooses a number for a document, and holds it as long as the connection lives or until `letGoStaged`: what has tables under
 * a number that nobody holds was forgotten, unless a plan has it.
 */
export async function holdStaged(client: ClientBase): Promise<number> {
  const number = await newNumber(client);
  await waitForStaged(client, number);
  return number;
}

/** Holds a number once nobody else does; fails as any lock does that is not to be had in time. */
export async function waitForStaged(client: ClientBase, number: number): Promise<void> {
  await client.query('select pg_advisory_lock($1, $2)', [lockClass, number]);
}

/** Whether nobody held a number, which this connection holds now. */
export async function tryHoldStaged(client: ClientBase, number: number): Promise<boolean> {
  const { rows } = await client.query<{ held: boolean }>('select pg_try_advisory_lock($1, $2) as held', [
    lockClass,
    number,
  ]);
  return rows[0]?.held === true;
}

/** Holds a number no more. */
export async function letGoStaged(client: ClientBase, number: number): Promise<void> {
  await client.query('select pg_advisory_unlock($1, $2)', [lockClass, number]);
}

/**
 * Makes empty tables for one document and gives their number, a new one where none is given. They are unlogged: fast, and
 * empty after a crash of PostgreSQL, which `areWhole` tells.
 */
export async function createStagedTables(client: ClientBase, held?: number): Promise<number> {
  const number = held ?? (await newNumber(client));
  for (const table of stagedTables) {
    await client.query(
      `create unlogged table ${stagedTable(number, table)} (position integer not null, ${columns[table]})
       with (autovacuum_enabled = false)`,
    );
  }
  await client.query(`create unlogged table ${wholeTable(number)} (at timestamptz not null default now())`);
  return number;
}

async function newNumber(client: ClientBase): Promise<number> {
  const { rows } = await client.query<{ number: string }>(`select nextval('export.staged_numbers') as number`);
  return Number(rows[0]?.number);
}

/** Makes what comparing with the live tables goes by. The records must have been checked: ids are unique. */
export async function indexStaged(client: ClientBase, number: number): Promise<void> {
  const key = { nodes: 'id', blobs: 'id', replicas: 'blob_id, backend_id', backends: 'id', policies: 'file_class' };
  for (const table of stagedTables) {
    await client.query(`alter table ${stagedTable(number, table)} add primary key (${key[table]})`);
  }
}

/** Notes that all records are there. */
export async function markWhole(client: ClientBase, number: number): Promise<void> {
  await client.query(`insert into ${wholeTable(number)} default values`);
}

/** Whether the tables are there with all of their records. */
export async function areWhole(client: ClientBase, number: number): Promise<boolean> {
  const { rows } = await client.query<{ there: boolean }>(`select to_regclass($1) is not null as there`, [
    wholeTable(number),
  ]);
  if (!rows[0]?.there) return false;
  const marked = await client.query(`select from ${wholeTable(number)}`);
  return marked.rowCount === 1;
}

/** The numbers under which there are tables. */
export async function stagedNumbers(client: ClientBase): Promise<number[]> {
  const { rows } = await client.query<{ number: string }>(
    `select distinct substring(relname from '^staged_([0-9]+)_')::bigint as number from pg_class
     where relnamespace = 'export'::regnamespace and relkind = 'r' and relname ~ '^staged_[0-9]+_' order by 1`,
  );
  return rows.map(({ number }) => Number(number));
}

/** Whether no plan has a document, nor will have: for a number that this connection holds. */
export async function isForgotten(client: ClientBase, number: number): Promise<boolean> {
  const { rowCount } = await client.query('select from export.plans where staged_number = $1', [number]);
  if (rowCount !== 0) return false;
  if (!(await areWhole(client, number))) return true;
  const { rows } = await client.query<{ late: boolean }>(
    `select at < now() - interval '1 hour' as late from ${wholeTable(number)}`,
  );
  return rows[0]?.late === true;
}

/** Forgets a document; safe to repeat. */
export async function dropStagedTables(client: ClientBase, number: number): Promise<void> {
  const names = [wholeTable(number), ...stagedTables.map((table) => stagedTable(number, table))];
  await client.query(`drop table if exists ${names.join()}`);
}

function wholeTable(number: number): string {
  if (!Number.isSafeInteger(number)) throw new Error('not the number of staged tables');
  return `export.staged_${number}_whole`;
}
