import { afterAll, beforeAll, expect, test } from '@jest/globals';
import pg from 'pg';
import { makeInstallation } from './installation.ts';
import { startTestDatabase } from './test-database.ts';
import type { TestDatabase } from './test-database.ts';

const backends = ['019a3e6e-0000-7000-8000-000000000001', '019a3e6e-0000-7000-8000-000000000002'] as const;
const files = 400;
const databases: TestDatabase[] = [];
const pools: pg.Pool[] = [];

beforeAll(async () => {
  for (let n = 0; n < 2; n += 1) {
    const database = await startTestDatabase();
    databases.push(database);
    const pool = new pg.Pool({ connectionString: database.url, max: 1 });
    pools.push(pool);
    for (const [index, id] of backends.entries()) {
      const config = { root_path: `/${index}` };
      await pool.query(
        `insert into registry.backends (id, name, type, config) values ($1, $2, 'local_directory', $3)`,
        [id, `backend ${index}`, config],
      );
    }
    await makeInstallation(pool, { files, backendIds: backends, seed: 5 });
  }
});

afterAll(async () => {
  for (const pool of pools) await pool.end();
  for (const database of databases) await database.close();
});

async function rowsOf(pool: pg.Pool | undefined, text: string): Promise<unknown[]> {
  const { rows } = (await pool?.query(text)) ?? { rows: [] };
  return rows;
}

test('it is the same for the same seed', async () => {
  const all = `select id, parent_id, name, size, blob_id, created_at from catalog.nodes where parent_id is not null order by id`;
  const [one, other] = [await rowsOf(pools[0], all), await rowsOf(pools[1], all)];
  expect(one).toEqual(other);
  expect(one).toHaveLength(files + files / 20);
});

test('all that it refers to is there, though nothing checked it while it was written', async () => {
  const [counts] = await rowsOf(
    pools[0],
    `select
       (select count(*)::integer from catalog.nodes n where parent_id is not null
          and not exists (select from catalog.nodes p where p.id = n.parent_id and p.kind = 'directory')) as orphans,
       (select count(*)::integer from catalog.nodes n where kind = 'file'
          and not exists (select from catalog.blobs b where b.id = n.blob_id and b.size = n.size)) as without_blob,
       (select count(*)::integer from catalog.blobs where length(chunk_crc32c) <> (size + 1048575) / 1048576 * 4) as bad_sums,
       (select count(*)::integer from catalog.blobs b where 2 <> (
          select count(*) from catalog.replicas r join registry.backends on id = backend_id where r.blob_id = b.id)) as bad_copies,
       (select count(*)::integer from catalog.nodes where name is not nfc normalized) as not_nfc,
       (select sum(replicas)::integer from catalog.replica_counts) as counted`,
  );
  const sound = { orphans: 0, without_blob: 0, bad_sums: 0, bad_copies: 0, not_nfc: 0 };
  expect(counts).toEqual({ ...sound, counted: 2 * files });
});
