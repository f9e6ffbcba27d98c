import type pg from 'pg';

/** A big installation that was never uploaded. */
export interface Installation {
  /** One directory for every twenty of them. */
  files: number;
  /** Where each file has a copy. */
  backendIds: readonly [string, string];
  /** The same seed gives the same rows. */
  seed: number;
}

const root = '00000000-0000-7000-8000-000000000000';
const filesPerDirectory = 20;
/** When the first file came, in ms since 1970: the 1st of November 2025. */
const begin = Date.UTC(2025, 10, 1, 8);
const fileClasses = ['document', 'photo', 'recording'];

/**
 * Writes files, directories, blobs, two replicas of each, and a policy for each file class straight into a database, as its
 * superuser and in one transaction. Names, sizes, checksums, places in the tree and times are like those of people who use
 * it for a year; one file of fifty lies in the recycle bin. There are no bytes on the backends. A million files take about
 * a minute.
 */
export async function makeInstallation(pool: pg.Pool, { files, backendIds, seed }: Installation): Promise<void> {
  const directories = Math.max(1, Math.ceil(files / filesPerDirectory));
  const client = await pool.connect();
  try {
    await client.query('begin');
    // No checks of foreign keys and no wait for the disk: it is faster, and the rows are the same.
    await client.query('set local session_replication_role = replica');
    await client.query('set local synchronous_commit = off');
    await client.query(`set local maintenance_work_mem = '256MB'`);
    await makeFunctions(client, seed);
    await makeTree(client, directories);
    await makeBlobs(client, files);
    await makeReplicas(client, files, backendIds);
    await makeFiles(client, files, directories);
    await makePolicies(client, backendIds);
    await client.query('commit');
    await client.query('vacuum analyze catalog.nodes, catalog.blobs, catalog.replicas');
    // Else a checkpoint would come in the middle of what is measured.
    await client.query('checkpoint');
  } catch (error) {
    await client.query('rollback');
    throw error;
  } finally {
    client.release();
  }
}

/** What a row holds is a function of the seed and its number. */
async function makeFunctions(client: pg.PoolClient, seed: number): Promise<void> {
  if (!Number.isSafeInteger(seed)) throw new Error('a seed is a whole number');
  // Only what is immutable all through is inlined: a call for each value would take ten times as long.
  const kept = 'language sql immutable parallel safe';
  await client.query(`
    create function pg_temp.dice(salt text, n bigint) returns double precision ${kept}
      return (hashtextextended(salt || n::text, ${seed}) & 4503599627370495) / 4503599627370496.0::double precision;
    create function pg_temp.at(n bigint) returns timestamptz ${kept}
      return to_timestamp((${begin} + n * 31 + (hashtextextended(n::text, ${seed}) & 15)) / 1000.0::double precision);
    create function pg_temp.id(salt text, n bigint) returns uuid ${kept}
      return (lpad(to_hex(${begin} + n * 31), 12, '0') || '7' || substr(md5(salt || n::text || ' ${seed}'), 1, 3)
        || 'a' || substr(md5(salt || n::text || ' ${seed}'), 4, 15))::uuid;
    create function pg_temp.word(salt text, n bigint) returns text ${kept}
      return (array['report', 'Übersicht', 'invoice', 'holiday', 'scan', 'notes', 'draft', 'contract', '写真', 'meeting',
        'budget', 'letter', 'sketch', 'rapport final', 'архив', 'minutes'])[1 + floor(pg_temp.dice(salt, n) * 16)::integer];
    create function pg_temp.size(n bigint) returns bigint ${kept}
      return case when pg_temp.dice('empty', n) < 0.01 then 0
        else least(67108864, exp(11.5 + 2.0 * sqrt(-2 * ln(1 - pg_temp.dice('u', n))) * cos(2 * pi() * pg_temp.dice('v', n))))::bigint end;`);
}

async function makeTree(client: pg.PoolClient, directories: number): Promise<void> {
  await client.query(
    `insert into catalog.nodes (id, parent_id, kind, name, created_at, updated_at)
     select pg_temp.id('directory', n), case when n <= 12 then $2::uuid else pg_temp.id('directory', n / 12) end,
       'directory', pg_temp.word('directory', n) || ' ' || n, pg_temp.at(n), pg_temp.at(n)
     from generate_series(1, $1::bigint) n`,
    [directories, root],
  );
}

async function makeBlobs(client: pg.PoolClient, files: number): Promise<void> {
  await client.query(
    `insert into catalog.blobs (id, size, sha256, chunk_crc32c, created_at)
     select pg_temp.id('blob', n), size, sha256(n::text::bytea),
       substr(decode(repeat(md5('crc' || n), ((size + 1048575) / 1048576 / 4 + 1)::integer), 'hex'),
         1, ((size + 1048575) / 1048576 * 4)::integer),
       pg_temp.at(n)
     from generate_series(1, $1::bigint) n, lateral (select pg_temp.size(n) as size) s`,
    [files],
  );
}

async function makeReplicas(client: pg.PoolClient, files: number, backendIds: readonly string[]): Promise<void> {
  await client.query(
    `insert into catalog.replicas (blob_id, backend_id, key, state, verified_at, created_at)
     select blob, backend, 'blobs/' || right(blob::text, 2) || '/' || blob, 'available', pg_temp.at(n + 60000),
       pg_temp.at(n)
     from generate_series(1, $1::bigint) n, lateral (select pg_temp.id('blob', n) as blob) b, unnest($2::uuid[]) backend`,
    [files, backendIds],
  );
  // Its triggers are off, but what they keep is part of every installation.
  await client.query(
    `insert into catalog.replica_counts (backend_id, slot, replicas, bytes)
     select backend, 256, $1::bigint, (select sum(pg_temp.size(n)) from generate_series(1, $1::bigint) n)
     from unnest($2::uuid[]) backend`,
    [files, backendIds],
  );
}

async function makeFiles(client: pg.PoolClient, files: number, directories: number): Promise<void> {
  await client.query(
    `insert into catalog.nodes
       (id, parent_id, kind, name, version, blob_id, size, media_type, file_class, created_at, updated_at, deleted_at, purge_at)
     select pg_temp.id('file', n), pg_temp.id('directory', 1 + floor(pg_temp.dice('parent', n) * $2)::bigint), 'file',
       pg_temp.word('file', n) || ' ' || pg_temp.word('second', n) || '-' || n || '.' || kind.ending,
       1 + floor(pg_temp.dice('version', n) * 3)::bigint, pg_temp.id('blob', n), pg_temp.size(n), kind.media_type,
       kind.file_class, pg_temp.at(n), pg_temp.at(n + floor(pg_temp.dice('updated', n) * 10000)::bigint), deleted.at,
       deleted.at + interval '10 years'
     from generate_series(1, $1::bigint) n,
       lateral (select case when n % 50 = 0 then pg_temp.at(n + 20000) end as at) deleted,
       lateral (
         select * from (values (0, 'pdf', 'application/pdf', 'document'), (1, 'docx',
             'application/vnd.openxmlformats-officedocument.wordprocessingml.document', 'document'),
           (2, 'jpg', 'image/jpeg', 'photo'), (3, 'jpg', 'image/jpeg', 'photo'), (4, 'm4a', 'audio/mp4', 'recording'))
           as kinds (place, ending, media_type, file_class)
         where place = floor(pg_temp.dice('kind', n) * 5)) kind`,
    [files, directories],
  );
}

async function makePolicies(client: pg.PoolClient, backendIds: readonly string[]): Promise<void> {
  await client.query(
    `insert into placement.policies (file_class, replicas)
     select file_class, 2 from unnest($1::text[]) file_class on conflict do nothing`,
    [fileClasses],
  );
  await client.query(
    `insert into placement.policy_backends (file_class, position, backend_id)
     select file_class, b.position - 1, b.id
     from unnest($1::text[]) file_class, unnest($2::uuid[]) with ordinality b (id, position) on conflict do nothing`,
    [fileClasses, backendIds],
  );
}
