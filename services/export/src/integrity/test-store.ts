import { pino } from 'pino';
import pg from 'pg';
import { openDatabase } from '@stowage/common/database/database';
import type { Database } from '@stowage/common/database/database';
import { rootDirectoryId } from '@stowage/common/ids';
import { startTestDatabase } from '@stowage/tests/support/test-database';

/** The metadata of a healthy installation, on a database of its own. */
export interface TestStore {
  /** As the service sees it. */
  database: Database;
  /** The superuser; constraints and triggers of the tables are its to break. */
  sql<R extends pg.QueryResultRow>(text: string, values?: unknown[]): Promise<R[]>;
  close(): Promise<void>;
}

/** An id of a thing of a kind (two hexadecimal digits) by its number. */
export function idOf(kind: string, number: number): string {
  return `01900000-0000-70${kind}-8000-${number.toString(16).padStart(12, '0')}`;
}

const id = (kind: string, number: string): string =>
  `('01900000-0000-70${kind}-8000-' || lpad(to_hex(${number}), 12, '0'))::uuid`;

/** Directories a tenth of the files, ten levels deep; two replicas of each file on two backends; some of it in the recycle bin. */
export async function startTestStore(files: number): Promise<TestStore> {
  const database = await startTestDatabase();
  const admin = new pg.Pool({ connectionString: database.url, max: 2 });
  admin.on('error', () => undefined);
  const own = openDatabase({
    url: database.url,
    service: 'export',
    connections: 2,
    logger: pino({ level: 'silent' }),
  });
  const store: TestStore = {
    database: own,
    sql: async <R extends pg.QueryResultRow>(text: string, values: unknown[] = []) =>
      (await admin.query<R>(text, values)).rows,
    close: async () => {
      await own.close();
      await admin.end();
      await database.close();
    },
  };
  await fill(store, files);
  return store;
}

async function fill({ sql }: TestStore, files: number): Promise<void> {
  const directories = Math.ceil(files / 10);
  await sql(`
    insert into registry.backends (id, name, type, config, is_default)
    select ${id('bb', 'i')}, 'backend ' || i, 'local_directory', '{}', i = 1 from generate_series(1, 2) i`);
  await sql(`
    insert into placement.policies (file_class, replicas) values ('default', 2) on conflict (file_class) do update set replicas = 2`);
  await sql(`delete from placement.policy_backends`);
  await sql(
    `insert into placement.policy_backends select 'default', i - 1, ${id('bb', 'i')} from generate_series(1, 2) i`,
  );
  await sql(`
    insert into catalog.nodes (id, parent_id, kind, name)
    select ${id('dd', 'i')}, case i % 10 when 1 then '${rootDirectoryId}' else ${id('dd', 'i - 1')} end, 'directory', 'directory ' || i
    from generate_series(1, ${directories}) i`);
  await sql(`
    insert into catalog.blobs (id, size, sha256, chunk_crc32c)
    select ${id('cc', 'i')}, i % 3 * 1048576 + i % 2, sha256(i::text::bytea), decode(repeat('00000000', i % 3 + i % 2), 'hex')
    from generate_series(1, ${files}) i`);
  await sql(`
    insert into catalog.replicas (blob_id, backend_id, key, state)
    select b.id, k.id, 'blobs/' || right(b.id::text, 2) || '/' || b.id, case when b.size % 2 = 0 then 'available' else 'unverified' end
    from catalog.blobs b, registry.backends k`);
  await sql(`
    insert into catalog.nodes (id, parent_id, kind, name, blob_id, size, media_type, file_class)
    select ${id('ff', 'i')}, ${id('dd', `i % ${directories} + 1`)}, 'file', 'file ' || i, b.id, b.size, 'text/plain', 'default'
    from generate_series(1, ${files}) i join catalog.blobs b on b.id = ${id('cc', 'i')}`);
  await addOrdinaryOddities(sql);
}

/** What a busy installation has at any moment, and nobody need worry about. */
async function addOrdinaryOddities(sql: TestStore['sql']): Promise<void> {
  // In the bin, a name that is taken again; one whose directory was purged; a purge under way.
  await sql(
    `
    update catalog.nodes set deleted_at = now(), purge_at = now() + interval '30 days', name = 'file 2'
    where id = $1`,
    [idOf('ff', 12)],
  );
  await sql(
    `
    update catalog.nodes set deleted_at = now(), purge_at = now() + interval '30 days', parent_id = null where id = $1`,
    [idOf('ff', 3)],
  );
  await sql(`
    insert into catalog.nodes (id, kind, name, purged_at) values ('${idOf('dd', 0xaaaaaa00)}', 'directory', 'going', now())`);
  await sql(`
    insert into catalog.nodes (id, parent_id, kind, name) values ('${idOf('dd', 0xaaaaaa01)}', '${idOf('dd', 0xaaaaaa00)}', 'directory', 'going too')`);
  // Content of nobody that waits for its removal, an abandoned upload, a bad copy beside a good one, a copy on its way.
  await sql(`
    insert into catalog.blobs (id, size, sha256, chunk_crc32c, delete_after)
    values ('${idOf('cc', 0xaaaaaa00)}', 1, sha256(''), '\\x00000000', now()), ('${idOf('cc', 0xaaaaaa01)}', 0, null, '', now())`);
  await sql(`
    insert into catalog.replicas (blob_id, backend_id, key, state)
    values ('${idOf('cc', 0xaaaaaa00)}', '${idOf('bb', 1)}', 'blobs/00/${idOf('cc', 0xaaaaaa00)}', 'removing')`);
  await sql(`update catalog.replicas set state = 'corrupt' where blob_id = $1 and backend_id = $2`, [
    idOf('cc', 4),
    idOf('bb', 1),
  ]);
  await sql(`update catalog.replicas set state = 'copying' where blob_id = $1 and backend_id = $2`, [
    idOf('cc', 5),
    idOf('bb', 2),
  ]);
  await sql(`
    insert into jobs.jobs (id, kind, state, lease_until, finished_at) values
      ('${idOf('ee', 1)}', 'full_reconcile', 'running', now() + interval '20 s', null),
      ('${idOf('ee', 2)}', 'remove_blob', 'pending', null, null), ('${idOf('ee', 3)}', 'verify_blob', 'failed', null, now())`);
  await sql(`
    insert into upload.uploads (id, user_id, state, file_id, blob_id, backend_id, expires_at) values
      ('${idOf('aa', 1)}', '${idOf('aa', 9)}', 'open', '${idOf('aa', 2)}', '${idOf('aa', 3)}', null, now() + interval '1 day'),
      ('${idOf('aa', 4)}', '${idOf('aa', 9)}', 'finalizing', '${idOf('aa', 5)}', '${idOf('aa', 6)}', '${idOf('bb', 1)}', now())`);
}
