import { afterAll, beforeAll, expect, test } from '@jest/globals';
import pg from 'pg';
import { defaultBackend } from '../support/backends.ts';
import { expectStatus, logIn, until } from '../support/client.ts';
import type { Client, Json } from '../support/client.ts';
import { FaultReport } from '../support/fault-report.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { describeWith, s3Server, webdavServer } from '../support/real-servers.ts';
import { makeS3Backend, makeWebdavBackend } from '../support/remote-backends.ts';
import { storedBlobs, storedObjects } from '../support/stored-blobs.ts';
import { startSystem, uniqueName } from '../support/system.ts';
import type { System } from '../support/system.ts';

const sizes = [0, 1, 5_000, 1_048_576, 9_000_000];
const fileClass = 'purged';
const report = new FaultReport('T79 what was deleted for good');
afterAll(() => report.print());

const [s3, webdav] = [s3Server(), webdavServer()];

describeWith('S3 and WebDAV', s3 && webdav ? { s3, webdav } : null, (servers) => {
  const random = new Random(chooseSeed());
  let system: System;
  let admin: Client;
  let database: pg.Pool;
  let backends: Json[];

  beforeAll(async () => {
    process.stderr.write(`remanence: STOWAGE_TEST_SEED=${random.seed}\n`);
    system = await startSystem('standalone', { STOWAGE_LOG_LEVEL: 'fatal', STOWAGE_GC_GRACE: '0ms' });
    admin = await logIn(system.url);
    backends = [
      await defaultBackend(admin),
      await makeS3Backend(admin, servers.s3),
      await makeWebdavBackend(admin, servers.webdav),
    ];
    database = new pg.Pool({ connectionString: system.databaseUrl, max: 1 });
    database.on('error', () => undefined);
  }, 120_000);
  afterAll(async () => {
    await database?.end();
    await system?.close();
  });

  async function rowsOf(table: string): Promise<number> {
    const { rows } = await database.query<{ count: number }>(`select count(*)::int as count from ${table}`);
    return rows[0]?.count ?? 0;
  }

  test('leaves no row, and no object but the marker on any backend', async () => {
    const body = { backends: backends.map(({ id }) => id), replicas: 3, sync_replicas: 3 };
    expectStatus(await admin.call('PUT', `/api/policies/placement/${fileClass}`, { body }), 200);
    const directory = (await admin.makeDirectory(uniqueName()))['id'];
    const ids: string[] = [];
    for (const size of [...sizes, ...sizes]) {
      const { id } = await admin.putFile(uniqueName(), random.bytes(size), { fileClass, directory });
      ids.push(id);
    }
    const held = await Promise.all(backends.map((backend) => storedBlobs(backend, servers)));
    expect(held.map((keys) => keys.length)).toEqual([ids.length, ids.length, ids.length]);

    // Half of them one by one, the others with the directory that they lie in.
    for (const id of ids.splice(0, sizes.length)) {
      expectStatus(await admin.delete(`/api/files/${id}`), 200);
      expectStatus(await admin.delete(`/api/files/${id}?permanent=true`), 204);
    }
    expectStatus(await admin.delete(`/api/directories/${directory}`), 200);
    expectStatus(await admin.delete('/api/files/recycle-bin'), 204);
    await until(async () => {
      await admin.post('/api/jobs/run-pending', { wait_seconds: 5 });
      return (await rowsOf('catalog.blobs')) + (await rowsOf('catalog.replicas')) === 0;
    }, 60_000);
    for (const backend of backends) {
      const left = await storedObjects(backend, servers);
      expect({ type: backend['type'], left }).toEqual({ type: backend['type'], left: ['.stowage-backend.json'] });
    }
    for (const id of ids) expectStatus(await admin.get(`/api/files/${id}/download`), 404);
    report.add('purged', { files: sizes.length * 2, copies: held.flat().length, left: 0 });
  }, 300_000);
});
