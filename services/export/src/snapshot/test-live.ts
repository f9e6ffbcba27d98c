import type pg from 'pg';
import type { Records } from '../document/test-documents.ts';

/** Puts the records of a document in place of the live metadata, as a superuser. */
export async function putLive(admin: pg.Pool, records: Records): Promise<void> {
  const client = await admin.connect();
  const insert = async (table: string, rows: readonly object[], columns: string): Promise<void> => {
    await client.query(
      `insert into ${table} (${columns}) select ${columns} from jsonb_populate_recordset(null::${table}, $1)`,
      [JSON.stringify(rows)],
    );
  };
  try {
    await client.query('begin');
    await client.query(
      'truncate catalog.nodes, catalog.blobs, catalog.replicas, registry.backends, placement.policies cascade',
    );
    await insertBackends(client, records);
    await insertBlobs(client, records);
    const node = 'id, parent_id, kind, name, version, created_at, updated_at, deleted_at, purge_at, purged_at';
    const directories = records.directories.map((record) => ({ ...record, kind: 'directory' }));
    const files = records.files.map((record) => ({ ...record, kind: 'file' }));
    await insert('catalog.nodes', [...directories, ...files], `${node}, blob_id, size, media_type, file_class`);
    await insert('catalog.replicas', records.replicas, 'blob_id, backend_id, key, state, verified_at, created_at');
    await client.query('commit');
  } catch (error) {
    await client.query('rollback');
    throw error;
  } finally {
    client.release();
  }
}

async function insertBackends(client: pg.ClientBase, { backends, policies }: Records): Promise<void> {
  for (const record of backends) {
    const { id, name, type, config, enabled, is_default, marked, version, created_at, updated_at } = record;
    await client.query(
      `insert into registry.backends (id, name, type, config, enabled, is_default, marked, version, created_at, updated_at)
      values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
      [id, name, type, JSON.stringify(config), enabled, is_default, marked, version, created_at, updated_at],
    );
    for (const field of record.secret_fields) {
      await client.query(
        `insert into registry.backend_secrets (backend_id, field, key_id, nonce, sealed) values ($1, $2, 'key', $3, $4)`,
        [id, field, Buffer.alloc(12), Buffer.from('sealed')],
      );
    }
  }
  for (const { file_class, replicas, sync_replicas, version, updated_at, backends: ids } of policies) {
    await client.query(
      `insert into placement.policies (file_class, replicas, sync_replicas, version, updated_at) values ($1, $2, $3, $4, $5)`,
      [file_class, replicas, sync_replicas, version, updated_at],
    );
    for (const [position, id] of ids.entries()) {
      await client.query(`insert into placement.policy_backends values ($1, $2, $3)`, [file_class, position, id]);
    }
  }
}

async function insertBlobs(client: pg.ClientBase, { blobs }: Records): Promise<void> {
  await client.query(
    `insert into catalog.blobs (id, size, sha256, chunk_crc32c, created_at, delete_after)
    select id, size, decode(sha256, 'hex'), decode(chunk_crc32c, 'base64'), created_at, delete_after
    from jsonb_to_recordset($1) as b (
      id uuid, size bigint, sha256 text, chunk_crc32c text, created_at timestamptz, delete_after timestamptz)`,
    [JSON.stringify(blobs)],
  );
}
