import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newId, rootDirectoryId } from '@stowage/common/ids';
import pg from 'pg';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import { defaultBackend, makeBackend } from '@stowage/tests/support/backends';
import { findCanaries, secret } from '@stowage/tests/support/canaries';
import { expectStatus, logIn, sha256, until } from '@stowage/tests/support/client';
import type { Client, Json } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { documentDigest } from '@stowage/tests/support/documents';
import { JobTable } from '@stowage/tests/support/job-table';
import { describeWith, s3Server, webdavServer } from '@stowage/tests/support/real-servers';
import { makeS3Backend, makeWebdavBackend } from '@stowage/tests/support/remote-backends';
import { localObjects, s3Objects, webdavObjects } from '@stowage/tests/support/stored-objects';
import type { StoredObjects } from '@stowage/tests/support/stored-objects';
import { startSystem, uniqueName } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';

const path = '/api/exports/metadata';
const keep = 3;
/** The name of the backend that exports go to, once the setting says so. */
const target = 'the place of exports';

let system: System;
let admin: Client;
let jobs: JobTable;
let database: pg.Client;

beforeAll(async () => {
  system = await startSystem(mode(), { STOWAGE_EXPORT_KEEP: String(keep) });
  admin = await logIn(system.url);
  jobs = await JobTable.open(system.databaseUrl);
  database = new pg.Client(system.databaseUrl);
  database.on('error', () => undefined);
  await database.connect();
  await admin.putFile(uniqueName('ファイル'), 'content');
});

afterAll(async () => {
  await database.end();
  await jobs.close();
  await system.close();
});

/** Runs an export to its end; gives the job. */
async function runExport(): Promise<Json> {
  const id = await jobs.insert('metadata_export', {});
  return until(async () => {
    const { json } = await admin.get(`/api/jobs/${id}`);
    return ['succeeded', 'failed'].includes(json['state']) ? json : null;
  }, 60_000);
}

/** The result of one that succeeded. */
async function exported(): Promise<Json> {
  const job = await runExport();
  expect(job).toMatchObject({ state: 'succeeded', error: null });
  return job['result'];
}

/** What a kept export is worth: it lies there under its key, and is given back as the same document. */
async function expectKept(objects: StoredObjects, backend: Json, result: Json): Promise<Json> {
  expect(result).toEqual({
    export_id: expect.any(String),
    key: expect.stringMatching(/^exports\/\d{8}T\d{6}Z-[0-9a-f-]{36}\.json\.gz$/),
    backend_id: backend['id'],
    backend_name: backend['name'],
    bytes: expect.any(Number),
    document_sha256: expect.stringMatching(/^[0-9a-f]{64}$/),
    counts: expect.any(Object),
    removed: expect.any(Number),
  });
  const stored = await objects.get(result['key']);
  if (!stored) throw new Error('there is no such object');
  expect(stored).toHaveLength(result['bytes']);
  const text = gunzipSync(stored);
  const document: Json = JSON.parse(text.toString());
  expect(document['sha256']).toBe(documentDigest(document));
  expect(document).toMatchObject({ sha256: result['document_sha256'], counts: result['counts'] });
  const given = expectStatus(
    await admin.get(`${path}?id=${result['export_id']}`, { 'accept-encoding': 'identity' }),
    200,
  );
  expect(given.headers.get('content-disposition')).toContain(result['export_id']);
  expect(given.bytes.equals(text)).toBe(true);
  // fetch expands it.
  const compressed = expectStatus(
    await admin.get(`${path}?id=${result['export_id']}`, { 'accept-encoding': 'gzip' }),
    200,
  );
  expect(compressed.headers.get('content-encoding')).toBe('gzip');
  expect(sha256(compressed.bytes)).toBe(sha256(text));
  return document;
}

async function exportFiles(backend: Json): Promise<string[]> {
  const names = await readdir(join(backend['config'].root_path, 'exports'));
  return names.map((name) => `exports/${name}`).sort();
}

async function keptKeys(): Promise<string[]> {
  const { rows } = await database.query<{ key: string }>(
    `select key from export.exports where reason = 'scheduled' and state = 'kept' order by key`,
  );
  return rows.map(({ key }) => key);
}

/** When the next one of the schedule comes. */
async function planned(): Promise<Date[]> {
  const { rows } = await database.query<{ run_after: Date }>(
    `select run_after from jobs.jobs where kind = 'metadata_export' and dedupe_key = 'schedule' and state = 'pending'`,
  );
  return rows.map((row) => row.run_after);
}

describe('An export of the schedule', () => {
  test('lies on the default backend, and is given back by its id', async () => {
    const backend = await defaultBackend(admin);
    await expectKept(localObjects(backend), backend, await exported());
  });

  test('is neither reported nor removed by what compares and sweeps backends', async () => {
    const backend = await defaultBackend(admin);
    const result = await exported();
    const { job } = expectStatus(
      await admin.post('/api/jobs/enqueue-full-reconcile', { remove_unknown: true }),
      202,
    ).json;
    const done = await until(async () => {
      const { json } = await admin.get(`/api/jobs/${job.id}`);
      return json['state'] === 'succeeded' ? json : null;
    }, 60_000);
    const compared = done['result'].compared.find((one: Json) => one['backend_id'] === backend['id']);
    expect(compared).toMatchObject({ unknown: 0 });
    const sweep = await jobs.insert('sweep', { backend_id: backend['id'] });
    await until(async () => (await jobs.read(sweep)).state === 'succeeded');
    await expectKept(localObjects(backend), backend, result);
  });

  test('makes room for itself: the oldest beyond those to keep are removed', async () => {
    const backend = await defaultBackend(admin);
    const results: Json[] = [];
    for (let round = 0; round < keep + 2; round += 1) results.push(await exported());
    const newest = results.slice(-keep).map((result) => result['key']);
    expect(await exportFiles(backend)).toEqual([...newest].sort());
    expect(await keptKeys()).toEqual([...newest].sort());
    expect(results.at(-1)?.['removed']).toBe(1);
    expectStatus(await admin.get(`${path}?id=${results[0]?.['export_id']}`), 404);
  });

  test('cleans up what a job left that was cut off, whether its object was written or not', async () => {
    const backend = await defaultBackend(admin);
    const objects = localObjects(backend);
    const leftovers = await Promise.all(
      [true, false].map(async (written) => {
        const id = newId();
        const key = `exports/20200101T000000Z-${id}.json.gz`;
        await database.query(
          `insert into export.exports (id, reason, backend_id, key, job_id) values ($1, 'scheduled', $2, $3, $4)`,
          [id, backend['id'], key, newId()],
        );
        if (written) await objects.put(key, gzipSync('{}'));
        return { id, key };
      }),
    );
    for (const { id } of leftovers) expectStatus(await admin.get(`${path}?id=${id}`), 409);
    const result = await exported();
    for (const { id, key } of leftovers) {
      expect(await objects.get(key)).toBeNull();
      expectStatus(await admin.get(`${path}?id=${id}`), 404);
    }
    await expectKept(objects, backend, result);
  });

  test('whose object is gone, or another one, is not given as a whole', async () => {
    const backend = await defaultBackend(admin);
    const objects = localObjects(backend);
    const [gone, cut] = [await exported(), await exported()];
    await objects.remove(gone['key']);
    expectStatus(await admin.get(`${path}?id=${gone['export_id']}`), 404);
    const bytes = await objects.get(cut['key']);
    await objects.put(cut['key'], bytes?.subarray(0, bytes.length - 9) ?? Buffer.alloc(0));
    expectStatus(await admin.get(`${path}?id=${cut['export_id']}`), 404);
  });

  test('is planned for the next turn of the interval', async () => {
    expect((await planned()).map((time) => time.toISOString())).toEqual([expect.stringMatching(/T00:00:00.000Z$/)]);
  });
});

describe('An export to the backend that the setting names', () => {
  beforeAll(async () => {
    await system.stop();
    await database.query(`delete from jobs.jobs where kind = 'metadata_export'`);
    await system.restart({ STOWAGE_EXPORT_BACKEND: target, STOWAGE_EXPORT_INTERVAL: 'off' });
  });

  /** Gives it the name that the setting has, for the time of a test. */
  async function asTarget(backend: Json, work: (named: Json) => Promise<void>): Promise<void> {
    const rename = async (name: string): Promise<Json> =>
      expectStatus(await admin.call('PATCH', `/api/backends/${backend['id']}`, { body: { name } }), 200).json;
    const named = await rename(target);
    try {
      await work(named);
    } finally {
      await rename(backend['name']);
    }
  }

  test('is not planned where the interval is off', async () => {
    expect(await planned()).toEqual([]);
  });

  test('fails where there is none, or it is disabled, and says so', async () => {
    expect(await runExport()).toMatchObject({
      state: 'failed',
      error: { detail: expect.stringContaining(`"${target}"`) },
    });
    await asTarget(await makeBackend(admin), async (backend) => {
      await expectKept(localObjects(backend), backend, await exported());
      expectStatus(await admin.post(`/api/backends/${backend['id']}/disable`), 200);
      expect(await runExport()).toMatchObject({
        state: 'failed',
        error: { detail: expect.stringContaining('is disabled') },
      });
    });
  });

  describeWith('S3', s3Server(), (server) => {
    test('is kept in a bucket, and holds none of its secrets', async () => {
      await asTarget(await makeS3Backend(admin, server), async (backend) => {
        const sealed = 'a canary that sings of no secret';
        const other = expectStatus(
          await admin.post('/api/backends', {
            name: uniqueName('canary'),
            type: 's3',
            config: {
              ...backend['config'],
              bucket: uniqueName('bucket'),
              access_key_id: `id of ${sealed}`,
              secret_access_key: sealed,
            },
          }),
          201,
        ).json;
        const document = await expectKept(s3Objects(server, backend), backend, await exported());
        const record = document['backends'].find((one: Json) => one['id'] === other['id']);
        expect(record).toMatchObject({ secret_fields: ['access_key_id', 'secret_access_key'] });
        expect(findCanaries(JSON.stringify(document), [secret('a secret key', sealed)])).toEqual([]);
      });
    });
  });

  describeWith('WebDAV', webdavServer(), (server) => {
    test('is kept in a folder', async () => {
      await asTarget(await makeWebdavBackend(admin, server), async (backend) => {
        await expectKept(webdavObjects(server, backend), backend, await exported());
      });
    });
  });
});

describe('An export of more than connections hold', () => {
  const directories = 60_000;

  beforeAll(async () => {
    await database.query(
      `insert into catalog.nodes (id, parent_id, kind, name)
      select (lpad(to_hex(n), 8, '0') || '-0000-7000-8000-000000000000')::uuid, $1, 'directory', 'many ' || n
      from generate_series(1, $2::int) n`,
      [rootDirectoryId, directories],
    );
  });

  /** How many snapshots PostgreSQL holds for exports. */
  async function snapshots(): Promise<number> {
    const { rows } = await database.query<{ count: number }>(
      `select count(*)::int as count from pg_stat_activity where query like 'copy (%' and state = 'active'`,
    );
    return rows[0]?.count ?? 0;
  }

  /** An answer whose body nobody reads yet. */
  async function begin(signal?: AbortSignal): Promise<Response> {
    const headers = { authorization: `Bearer ${admin.token}`, 'accept-encoding': 'identity' };
    const answer = await fetch(`${system.url}${path}`, signal ? { headers, signal } : { headers });
    expect(answer.status).toBe(200);
    await until(async () => (await snapshots()) === 1);
    return answer;
  }

  test('is whole for a reader that takes its time', async () => {
    const document: Json = JSON.parse(await (await begin()).text());
    expect(document['counts'].directories).toBeGreaterThan(directories);
    expect(document['sha256']).toBe(documentDigest(document));
  });

  test('ends its snapshot when its reader leaves', async () => {
    const leaves = new AbortController();
    await begin(leaves.signal);
    leaves.abort();
    await until(async () => (await snapshots()) === 0);
  });

  test('breaks the connection where the database breaks it, and never ends cleanly', async () => {
    const answer = await begin();
    await database.query(`select pg_terminate_backend(pid) from pg_stat_activity where query like 'copy (%'`);
    await expect(answer.text()).rejects.toThrow();
  });
});
