import pg from 'pg';
import { pino } from 'pino';
import { openDatabase } from '@stowage/common/database/database';
import type { Database } from '@stowage/common/database/database';
import { blobKey } from '@stowage/common/blob-key';
import { newId, rootDirectoryId } from '@stowage/common/ids';
import { startTestDatabase } from '@stowage/tests/support/test-database';
import { createStagedTables, markWhole, stagedTable } from '../document/staged-tables.ts';
import { importStaged } from './import-staged.ts';
import { lockMetadata } from './lock-metadata.ts';

/** Metadata on a database of their own, written by SQL. */
export interface TestMetadata {
  url: string;
  /** With the role of the export service. */
  database: Database;
  /** The superuser: sees and changes everything. */
  admin: pg.Pool;
  /** The default backend. */
  backendId: string;
  close(): Promise<void>;
}

export async function startTestMetadata(): Promise<TestMetadata> {
  const server = await startTestDatabase();
  const database = openDatabase({
    url: server.url,
    service: 'export',
    connections: 4,
    logger: pino({ level: 'silent' }),
  });
  const admin = new pg.Pool({ connectionString: server.url, max: 4 });
  admin.on('error', () => undefined);
  const backendId = newId();
  await admin.query(
    `insert into registry.backends (id, name, type, is_default, marked, config)
     values ($1, 'local', 'local_directory', true, true, '{"root_path": "/data"}')`,
    [backendId],
  );
  await admin.query(`insert into placement.policies (file_class, replicas) values ('default', 1)`);
  await admin.query(`insert into placement.policy_backends values ('default', 0, $1)`, [backendId]);
  return {
    url: server.url,
    database,
    admin,
    backendId,
    close: async () => {
      await database.close();
      await admin.end();
      await server.close();
    },
  };
}

/** Copies all live metadata into staged tables, as if an export of now had been read. Gives their number. */
export async function stageLive({ bulk }: Database): Promise<number> {
  const client = await bulk.connect();
  try {
    const number = await createStagedTables(client);
    const copy = async (table: Parameters<typeof stagedTable>[1], columns: string, from: string): Promise<void> => {
      await client.query(`insert into ${stagedTable(number, table)} (position, ${columns}) ${from}`);
    };
    const nodes =
      'id, parent_id, kind, name, version, created_at, updated_at, deleted_at, purge_at, purged_at, blob_id, size, media_type, file_class';
    await copy('nodes', nodes, `select 0, ${nodes} from catalog.nodes`);
    const blobs = 'id, size, sha256, chunk_crc32c, created_at, delete_after';
    await copy('blobs', blobs, `select 0, ${blobs} from catalog.blobs`);
    const replicas = 'blob_id, backend_id, key, state, verified_at, created_at';
    await copy('replicas', replicas, `select 0, ${replicas} from catalog.replicas`);
    const backends = 'id, name, type, enabled, is_default, marked, config, version, created_at, updated_at';
    await copy('backends', `${backends}, secret_fields`, `select 0, ${backends}, '{}' from registry.backends`);
    await copy(
      'policies',
      'file_class, replicas, sync_replicas, version, updated_at, backends',
      `select 0, file_class, replicas, sync_replicas, version, updated_at, array(
         select backend_id from placement.policy_backends b where b.file_class = p.file_class order by position)
       from placement.policies p`,
    );
    await markWhole(client, number);
    return number;
  } finally {
    client.release();
  }
}

/** Imports staged tables in a transaction of its own. Gives the id of the job. */
export async function importInto(
  { bulk }: Database,
  staged: { number: number; knownBackends: readonly string[]; instanceId?: string },
): Promise<string | undefined> {
  const client = await bulk.connect();
  try {
    await client.query('begin');
    await lockMetadata(client);
    const job = await importStaged(client, { instanceId: null, ...staged });
    await client.query('commit');
    return job.id;
  } catch (error) {
    await client.query('rollback');
    throw error;
  } finally {
    client.release();
  }
}

/** All that an import brings, in one order; replicas without what it does not bring. */
export async function snapshotOf(admin: pg.Pool): Promise<Record<string, unknown[]>> {
  const tables = {
    nodes: `select * from catalog.nodes order by id`,
    blobs: `select * from catalog.blobs order by id`,
    replicas: `select blob_id, backend_id, key, created_at from catalog.replicas order by blob_id, backend_id`,
    backends: `select id, name, type, config, is_default, created_at from registry.backends order by id`,
    policies: `select * from placement.policies order by file_class`,
    policy_backends: `select * from placement.policy_backends order by file_class, position`,
  };
  const entries = Object.entries(tables).map(async ([name, text]) => [name, (await admin.query(text)).rows] as const);
  return Object.fromEntries(await Promise.all(entries));
}

/** How far the kept counts of replicas are from what they count; empty where they are right. */
export async function miscounted(admin: pg.Pool): Promise<unknown[]> {
  const { rows } = await admin.query(`
    select coalesce(u.backend_id, r.backend_id) as backend_id, u.replicas, u.bytes, r.count, r.sum
    from catalog.backend_usage u full join (
      select r.backend_id, count(*), sum(b.size) from catalog.replicas r join catalog.blobs b on b.id = r.blob_id
      group by r.backend_id) r on r.backend_id = u.backend_id
    where (u.replicas, u.bytes) is distinct from (r.count, r.sum)`);
  return rows;
}

/** Makes a directory by SQL. */
export async function addDirectory(admin: pg.Pool, name: string, parentId: string = rootDirectoryId): Promise<string> {
  const id = newId();
  await admin.query(`insert into catalog.nodes (id, parent_id, kind, name) values ($1, $2, 'directory', $3)`, [
    id,
    parentId,
    name,
  ]);
  return id;
}

/** Makes a file by SQL, with one replica that was read whole. */
export async function addFile(
  admin: pg.Pool,
  { name, parentId = rootDirectoryId, backendId, size = 5 }: AddedFile,
): Promise<{ id: string; blobId: string }> {
  const [id, blobId] = [newId(), newId()];
  await admin.query(
    `insert into catalog.blobs (id, size, sha256, chunk_crc32c) values ($1::uuid, $2, sha256($1::uuid::text::bytea), '\\x01020304')`,
    [blobId, size],
  );
  await admin.query(
    `insert into catalog.replicas (blob_id, backend_id, key, state, verified_at) values ($1, $2, $3, 'available', now())`,
    [blobId, backendId, blobKey(blobId)],
  );
  await admin.query(
    `insert into catalog.nodes (id, parent_id, kind, name, blob_id, size, media_type, file_class)
     values ($1, $2, 'file', $3, $4, $5, 'text/plain', 'document')`,
    [id, parentId, name, blobId, size],
  );
  return { id, blobId };
}

interface AddedFile {
  name: string;
  parentId?: string;
  backendId: string;
  /** In bytes. */
  size?: number;
}
