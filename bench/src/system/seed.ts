import type pg from 'pg';
import type { Stowage } from './stowage.ts';

const root = '00000000-0000-7000-8000-000000000000';

/** Ids as generate_series gives them: version 7, with a number in the end and the kind in the middle. */
const idOf = (kind: string, number: string): string =>
  `('01900000-0000-7000-8${kind}-' || lpad(to_hex(${number}), 12, '0'))::uuid`;

/** The id of the n-th seeded file of a directory. */
export function seededFileId(directory: number, n: number): string {
  return `01900000-0000-7000-8${kindOf(directory)}-${n.toString(16).padStart(12, '0')}`;
}

/** The id of a seeded directory. */
export function seededDirectoryId(directory: number): string {
  return `01900000-0000-7000-8000-${directory.toString(16).padStart(12, '0')}`;
}

function kindOf(directory: number): string {
  return directory.toString(16).padStart(3, '0');
}

/** Writes an empty directory below the root. */
export async function seedEmptyDirectory({ database }: Stowage, directory: number): Promise<void> {
  await database.query(
    "insert into catalog.nodes (id, parent_id, kind, name) values ($1, $2, 'directory', 'seeded-' || $3::text)",
    [seededDirectoryId(directory), root, directory],
  );
}

/** How large the content of a seeded file is said to be. */
export const seededBytes = 10_240;

/**
 * Writes a directory below the root with `count` files straight into the database. They have metadata, blobs and
 * replicas as uploaded ones have, on `backendId` or else the default backend, but no bytes there. Numbers of directories
 * begin with 1.
 */
export async function seedDirectory(
  system: Stowage,
  directory: number,
  count: number,
  backendId: string | null = null,
): Promise<void> {
  await seedEmptyDirectory(system, directory);
  const client = await system.database.connect();
  try {
    await client.query('begin');
    // No checks of foreign keys and no wait for the disk: it is faster, and the rows are the same.
    await client.query('set local session_replication_role = replica');
    await client.query('set local synchronous_commit = off');
    await insertFiles(client, { directory, count, backendId });
    await client.query('commit');
    await client.query('vacuum analyze catalog.nodes, catalog.blobs, catalog.replicas');
    // Else a checkpoint would come in the middle of what is measured.
    await client.query('checkpoint');
  } finally {
    client.release();
  }
}

interface Files {
  directory: number;
  count: number;
  backendId: string | null;
}

async function insertFiles(client: pg.PoolClient, { directory, count, backendId }: Files): Promise<void> {
  const kind = kindOf(directory);
  await client.query(
    `insert into catalog.blobs (id, size, sha256, chunk_crc32c)
     select ${idOf(kind, 'n')}, ${seededBytes}, sha256(n::text::bytea), '\\x00000000' from generate_series(1, $1::int) n`,
    [count],
  );
  await client.query(
    `insert into catalog.replicas (blob_id, backend_id, key, state)
     select blob.id, b.id, 'blobs/' || right(blob.id::text, 2) || '/' || blob.id, 'available'
     from generate_series(1, $1::int) n, lateral (select ${idOf(kind, 'n')} as id) blob, registry.backends b
     where case when $2::uuid is null then b.is_default else b.id = $2 end`,
    [count, backendId],
  );
  // Sizes and times in another order than names, as in a directory that people use.
  await client.query(
    `insert into catalog.nodes (id, parent_id, kind, name, blob_id, size, media_type, file_class, created_at, updated_at)
     select ${idOf(kind, 'n')}, $2, 'file', 'file-' || lpad(n::text, 8, '0') || '.txt', ${idOf(kind, 'n')},
       n::bigint * 48271 % 1000003, 'text/plain', 'document', now() - (n::bigint * 7919 % $1) * interval '1 s',
       now() - (n::bigint * 104729 % $1) * interval '1 s'
     from generate_series(1, $1::int) n`,
    [count, seededDirectoryId(directory)],
  );
}
