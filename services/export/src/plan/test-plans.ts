import pg from 'pg';
import { openDatabase } from '@stowage/common/database/database';
import { newId, rootDirectoryId } from '@stowage/common/ids';
import { createLogger } from '@stowage/common/runtime/logger';
import { startTestDatabase } from '@stowage/tests/support/test-database';
import { createStagedTables, markWhole, stagedTable, stagedTables } from '../document/staged-tables.ts';
import { inBulkTransaction } from './bulk-transaction.ts';

/** A database with some metadata in it, and documents staged by SQL. */
export interface TestPlans {
  /** The superuser. */
  admin: pg.Pool;
  /** As the service has it. */
  bulk: pg.Pool;
  /** Stages the live metadata as a whole document; gives its number. */
  stageLive(): Promise<number>;
  /** In a transaction of the service. */
  run<R>(work: (client: pg.PoolClient) => Promise<R>): Promise<R>;
  close(): Promise<void>;
}

export const localId = '01900000-0000-7000-8000-00000000000a';
export const farId = '01900000-0000-7000-8000-00000000000b';

export async function startTestPlans(): Promise<TestPlans> {
  const server = await startTestDatabase();
  const logger = createLogger('test', 'silent');
  const database = openDatabase({ url: server.url, service: 'export', connections: 2, logger });
  const admin = new pg.Pool({ connectionString: server.url, max: 3 });
  admin.on('error', () => undefined);
  await seed(admin);
  const run: TestPlans['run'] = (work) => inBulkTransaction(database.bulk, work);
  return {
    admin,
    bulk: database.bulk,
    run,
    stageLive: () => run(stageLive),
    close: async () => {
      await database.close();
      await admin.end();
      await server.close();
    },
  };
}

/** Two backends, a policy for each of two classes, five directories, twenty files with a blob each, on both backends. */
async function seed(admin: pg.Pool): Promise<void> {
  await admin.query(
    `insert into registry.backends (id, name, type, is_default, config)
     values ($1, 'local', 'local_directory', true, '{"root_path": "/data/local"}'),
       ($2, 'far', 's3', false, '{"endpoint": null, "region": "eu-central-1", "bucket": "far-away"}')`,
    [localId, farId],
  );
  await admin.query(
    `insert into registry.backend_secrets (backend_id, field, key_id, nonce, sealed)
     values ($1, 'access_key_id', 'k', '\\x000000000000000000000000', '\\x00'),
       ($1, 'secret_access_key', 'k', '\\x000000000000000000000000', '\\x00')`,
    [farId],
  );
  await admin.query(`insert into placement.policies (file_class, replicas) values ('default', 2), ('photo', 1)`);
  await admin.query(
    `insert into placement.policy_backends values ('default', 1, $1), ('default', 2, $2), ('photo', 1, $2)`,
    [localId, farId],
  );
  for (let directory = 0; directory < 5; directory += 1) {
    const parent = newId();
    await admin.query(`insert into catalog.nodes (id, parent_id, kind, name) values ($1, $2, 'directory', $3)`, [
      parent,
      rootDirectoryId,
      `directory ${directory}`,
    ]);
    for (let file = 0; file < 4; file += 1) await addFile(admin, parent, `file ${file}`);
  }
}

/** A file with content on both backends; gives its id. */
export async function addFile(admin: pg.Pool, parent: string, name: string): Promise<string> {
  const [file, blob] = [newId(), newId()];
  await admin.query(
    `insert into catalog.blobs (id, size, sha256, chunk_crc32c) values ($1, 3, sha256($2), '\\x01020304')`,
    [blob, Buffer.from(blob)],
  );
  await admin.query(
    `insert into catalog.nodes (id, parent_id, kind, name, blob_id, size, media_type, file_class)
     values ($1, $2, 'file', $3, $4, 3, 'text/plain', 'document')`,
    [file, parent, name, blob],
  );
  await admin.query(
    `insert into catalog.replicas (blob_id, backend_id, key, state, verified_at)
     select $1::uuid, b, 'blobs/' || right($1::text, 2) || '/' || $1::text, 'available', now()
     from unnest($2::uuid[]) b`,
    [blob, [localId, farId]],
  );
  return file;
}

export async function stageLive(client: pg.PoolClient): Promise<number> {
  const number = await createStagedTables(client);
  for (const table of stagedTables) {
    await client.query(
      `insert into ${stagedTable(number, table)} select row_number() over () - 1, * from (${sources[table]}) live`,
    );
  }
  await markWhole(client, number);
  return number;
}

/** In the order of the staged tables' columns. */
const sources = {
  nodes: `
    select id, parent_id, kind, name, version, created_at, updated_at, deleted_at, purge_at, purged_at, blob_id, size,
      media_type, file_class
    from catalog.nodes order by kind, id`,
  blobs: `select id, size, sha256, chunk_crc32c, created_at, delete_after from catalog.blobs order by id`,
  replicas: `
    select blob_id, backend_id, key, state, verified_at, created_at from catalog.replicas order by blob_id, backend_id`,
  backends: `
    select id, name, type, enabled, is_default, marked, config, coalesce(s.fields, '{}'), version, created_at, updated_at
    from registry.backends b left join registry.backend_secret_fields s on s.backend_id = b.id order by id`,
  policies: `
    select file_class, replicas, sync_replicas, array(
      select backend_id from placement.policy_backends b where b.file_class = p.file_class order by position) as backends,
      version, updated_at
    from placement.policies p order by file_class`,
};
