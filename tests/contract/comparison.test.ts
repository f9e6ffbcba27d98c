import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newId } from '@stowage/common/ids';
import pg from 'pg';
import { defaultBackend, makeBackend } from '@stowage/tests/support/backends';
import { expectStatus, logIn, sha256, until } from '@stowage/tests/support/client';
import type { Client, Json } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { describeWith, s3Server, webdavServer } from '@stowage/tests/support/real-servers';
import { makeS3Backend, makeWebdavBackend } from '@stowage/tests/support/remote-backends';
import { localObjects, s3Objects, webdavObjects } from '@stowage/tests/support/stored-objects';
import type { StoredObjects } from '@stowage/tests/support/stored-objects';
import { startSystem, uniqueName } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';

const graceMs = 5_000;
const marker = '.stowage-backend.json';

let system: System;
let admin: Client;
let database: pg.Client;

beforeAll(async () => {
  system = await startSystem(mode(), { STOWAGE_GC_GRACE: `${graceMs / 1000}s` });
  admin = await logIn(system.url);
  database = new pg.Client(system.databaseUrl);
  database.on('error', () => undefined);
  await database.connect();
});
afterAll(async () => {
  await database.end();
  await system.close();
});

/** Runs a full reconcile of its own to its end; gives what it tells of one backend. */
async function reconcile(backend: Json, body: Json = {}): Promise<Json> {
  for (;;) {
    const { job } = expectStatus(await admin.post('/api/jobs/enqueue-full-reconcile', body), 202).json;
    const done = await until(async () => {
      const { json } = await admin.get(`/api/jobs/${job.id}`);
      return json['state'] === 'succeeded' ? json : null;
    }, 60_000);
    // One that ran meanwhile did it all.
    if (done['result'].covered_by) continue;
    const { total, done: compared } = done['progress'];
    expect(total).toBe(compared);
    return done['result'].compared.find((one: Json) => one['backend_id'] === backend['id']);
  }
}

const idKey = (id: string): string => `blobs/${id.slice(-2)}/${id}`;

/** Twelve files, each on the default backend and on this one. */
async function fill(backend: Json): Promise<{ id: string; content: Buffer; key: string }[]> {
  const fileClass = uniqueName('class');
  const backends = [(await defaultBackend(admin))['id'], backend['id']];
  const body = { backends, replicas: 2, sync_replicas: 2 };
  expectStatus(await admin.call('PUT', `/api/policies/placement/${fileClass}`, { body }), 200);
  const files = [];
  for (let n = 0; n < 12; n += 1) {
    const content = Buffer.from(`content ${n} of ${fileClass}`);
    const { id } = await admin.putFile(uniqueName(), content, { fileClass });
    const { rows } = await database.query('select blob_id from catalog.nodes where id = $1', [id]);
    files.push({ id: String(id), content, key: idKey(rows[0].blob_id) });
  }
  return files;
}

async function replicasOf(id: string): Promise<Json> {
  return expectStatus(await admin.get(`/api/files/${id}`), 200).json['placement'];
}

function compared(make: () => Promise<Json>, open: (backend: Json) => StoredObjects): void {
  let backend: Json;
  let objects: StoredObjects;
  let files: Awaited<ReturnType<typeof fill>>;

  beforeAll(async () => {
    backend = await make();
    objects = open(backend);
    files = await fill(backend);
  });

  test('what was deleted or cut behind our back is found and healed by one run', async () => {
    const [gone, cut] = files;
    if (!gone || !cut) throw new Error('twelve files');
    await objects.remove(gone.key);
    await objects.put(cut.key, cut.content.subarray(0, 5));
    expect(await reconcile(backend)).toMatchObject({ compared: true, known: 12, missing: 2, unknown: 0, failed: 0 });
    for (const { id, key, content } of [gone, cut]) {
      expect((await objects.get(key))?.equals(content)).toBe(true);
      expect(await replicasOf(id)).toMatchObject({ state: 'satisfied', replicas: [{}, {}] });
    }
    expect(await reconcile(backend)).toMatchObject({ listed: 12, known: 12, missing: 0, looked_at: 0, adopted: 0 });
  });

  test('a copy that the metadata forgot is found again, not made anew', async () => {
    const [file] = files;
    if (!file) throw new Error('twelve files');
    await database.query('delete from catalog.replicas where blob_id = $1 and backend_id = $2', [
      file.key.slice(-36),
      backend['id'],
    ]);
    expect((await replicasOf(file.id))['replicas']).toHaveLength(1);
    expect(await reconcile(backend)).toMatchObject({ adopted: 1, unknown: 0 });
    expect(await replicasOf(file.id)).toMatchObject({
      state: 'satisfied',
      replicas: [{ state: 'available' }, { state: 'available' }],
    });
  });

  test('an object that nobody knows is told of, and goes once it is old and was seen twice', async () => {
    const orphan = idKey(newId());
    await objects.put(orphan, Buffer.from('nobody knows me'));
    const first = await reconcile(backend);
    expect(first).toMatchObject({ unknown: 1, unknown_bytes: 15, removed: 0 });
    expect(first['unknown_sample']).toMatchObject([{ key: orphan, size: 15 }]);
    expect(await objects.get(orphan)).not.toBeNull();
    await until(async () => {
      await reconcile(backend);
      return (await objects.get(orphan)) === null;
    }, 60_000);
    const fresh = idKey(newId());
    const plantedAt = performance.now();
    await objects.put(fresh, Buffer.from('too young'));
    await reconcile(backend);
    const second = await reconcile(backend);
    if (performance.now() - plantedAt < graceMs) expect(second).toMatchObject({ unknown: 1, removed: 0 });
    for (const { content, id } of files) {
      expect(sha256(expectStatus(await admin.get(`/api/files/${id}/download`), 200).bytes)).toBe(sha256(content));
    }
    await objects.remove(fresh);
  });

  test('many at once wait for the word of an admin', async () => {
    const orphans = [newId(), newId(), newId()].map(idKey);
    for (const key of orphans) await objects.put(key, Buffer.from('x'));
    await until(async () => (await reconcile(backend))['kept'] === 'too_many', 120_000);
    for (const key of orphans) expect(await objects.get(key)).not.toBeNull();
    expect(await reconcile(backend, { remove_unknown: true })).toMatchObject({ removed: 3, kept: null });
    await until(async () => (await Promise.all(orphans.map((key) => objects.get(key)))).every((got) => got === null));
  }, 180_000);

  test('a place without its marker is not compared: nothing is missing, nothing goes (R19)', async () => {
    const kept = await objects.get(marker);
    if (!kept) throw new Error('there is no marker');
    const keys = files.map(({ key }) => key);
    for (const key of [marker, ...keys]) await objects.remove(key);
    const report = await reconcile(backend);
    expect(report).toMatchObject({ compared: false, missing: 0, removed: 0, unknown: 0 });
    expect(report['reason']).toEqual(expect.any(String));
    const { rows } = await database.query('select distinct state from catalog.replicas where backend_id = $1', [
      backend['id'],
    ]);
    expect(rows).toEqual([{ state: 'available' }]);
    for (const { key, content } of files) await objects.put(key, content);
    await objects.put(marker, kept);
    expectStatus(await admin.post(`/api/backends/${backend['id']}/check`), 200);
    expect(await reconcile(backend)).toMatchObject({ compared: true, known: 12, listed: 12, missing: 0 });
  });
}

describe('on a local backend', () => {
  compared(() => makeBackend(admin), localObjects);
});

describeWith('S3', s3Server(), (server) => {
  compared(
    () => makeS3Backend(admin, server),
    (backend) => s3Objects(server, backend),
  );
});

describeWith('WebDAV', webdavServer(), (server) => {
  compared(
    () => makeWebdavBackend(admin, server),
    (backend) => webdavObjects(server, backend),
  );
});

test('removals that are held are told of by preview, and jobs that remove wait', async () => {
  const spare = await makeBackend(admin);
  const [first] = await fill(spare);
  if (!first) throw new Error('twelve files');
  await database.query(
    "insert into placement.removal_hold (removals_held_until) values (now() + interval '1 d') on conflict (slot) do update set removals_held_until = excluded.removals_held_until",
  );
  const fileClass = expectStatus(await admin.get(`/api/files/${first.id}`), 200).json['file_class'];
  const body = { backends: [spare['id']], replicas: 1 };
  expectStatus(await admin.call('PUT', `/api/policies/placement/${fileClass}`, { body }), 200);
  const preview = expectStatus(await admin.get(`/api/policies/placement/preview?file_class=${fileClass}`), 200).json;
  expect(preview['classes']).toMatchObject([{ files: 12, satisfied: 12, to_remove: 0, unsatisfiable: 0 }]);
  expect(preview['problems']).toMatchObject([{ code: 'removals_held', files: 12 }]);
  await reconcile(spare);
  expect((await replicasOf(first.id))['replicas']).toHaveLength(2);
  expectStatus(await admin.delete(`/api/files/${first.id}`), 200);
  expectStatus(await admin.delete(`/api/files/${first.id}?permanent=true`), 204);
  const job = await until(async () => {
    await admin.post('/api/jobs/run-pending', { kinds: ['remove_blob'], wait_seconds: 1 });
    const { rows } = await database.query(
      "select run_after > now() + interval '30 min' as later, state from jobs.jobs where kind = 'remove_blob' and state = 'pending' and params ->> 'blob_id' = $1",
      [first.key.slice(-36)],
    );
    return rows[0]?.later === true ? rows[0] : null;
  }, 30_000);
  expect(job).toMatchObject({ state: 'pending' });
  expect(await localObjects(spare).get(first.key)).not.toBeNull();
  await database.query('delete from placement.removal_hold');
});
