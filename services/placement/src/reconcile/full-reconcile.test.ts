import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { openDatabase, queryBuilder } from '@stowage/common/database/database';
import type { Database } from '@stowage/common/database/database';
import { newId } from '@stowage/common/ids';
import { claimJobs, settleJob } from '@stowage/common/jobs/queue';
import { PostponedJob } from '@stowage/common/jobs/job';
import type { ClaimedJob, JsonObject } from '@stowage/common/jobs/job';
import { backgroundContext } from '@stowage/common/rpc/context';
import { createLogger } from '@stowage/common/runtime/logger';
import { ReplicaState } from '@stowage/proto/stowage/catalog/v1/node';
import { until } from '@stowage/tests/support/client';
import { startTestDatabase } from '@stowage/tests/support/test-database';
import type { TestDatabase } from '@stowage/tests/support/test-database';
import type { Kysely } from 'kysely';
import pg from 'pg';
import { BackendSlots } from '../backend-slots.ts';
import { previewPlacement } from '../preview.ts';
import type { Tables } from '../tables.ts';
import { TestStorage } from '../test-storage.ts';
import { fullReconcile } from './full-reconcile.ts';
import { placeBlob } from './place-blob.ts';

const [near, far, spare] = [newId(), newId(), newId()];
const limits = { outageGraceMs: 6 * 3_600_000, freshMs: 3_600_000 };
const lease = { holder: newId(), leaseMs: 60_000 };

let server: TestDatabase;
let admin: pg.Pool;
let database: Database;
let db: Kysely<Tables>;
let storage: TestStorage;

beforeAll(async () => {
  server = await startTestDatabase();
  admin = new pg.Pool({ connectionString: server.url, max: 2 });
  admin.on('error', () => undefined);
  await admin.query(
    `insert into registry.backends (id, name, type, config) values ($1, 'near', 'local_directory', '{}'), ($2, 'far', 's3', '{}'),
       ($3, 'spare', 's3', '{}')`,
    [near, far, spare],
  );
  database = openDatabase({
    url: server.url,
    service: 'placement',
    connections: 4,
    logger: createLogger('test', 'silent'),
  });
  db = queryBuilder<Tables>(database);
});
afterAll(async () => {
  await database.close();
  await admin.end();
  await server.close();
});
beforeEach(async () => {
  storage = new TestStorage();
  await admin.query('truncate jobs.jobs, jobs.outbox, placement.reconcile_run, placement.policies cascade');
  await admin.query(`update registry.backends set enabled = true, health_status = 'healthy'`);
  await setPolicy('default', [near], 1);
});

async function setPolicy(fileClass: string, backends: string[], replicas: number): Promise<void> {
  await admin.query('delete from placement.policies where file_class = $1', [fileClass]);
  await admin.query('insert into placement.policies (file_class, replicas) values ($1, $2)', [fileClass, replicas]);
  await admin.query(
    'insert into placement.policy_backends select $1, place - 1, id from unnest($2::uuid[]) with ordinality as b (id, place)',
    [fileClass, backends],
  );
}

async function enqueue(kind = 'full_reconcile', params: JsonObject = {}): Promise<string> {
  const id = newId();
  await admin.query(`insert into jobs.jobs (id, kind, params, run_after) values ($1, $2, $3, now() - interval '1 s')`, [
    id,
    kind,
    JSON.stringify(params),
  ]);
  return id;
}

async function claim(kind = 'full_reconcile'): Promise<ClaimedJob> {
  const [job] = await claimJobs(db, [kind], 1, lease);
  if (!job) throw new Error('there is nothing to claim');
  return job;
}

const slots = new BackendSlots({ most: 4, waitMs: 0, slowMs: 60_000, slowMost: 1, restMs: 0 });
const needs = () => ({ db, services: storage.services(), limits, atOnce: 4 });

function run(job: ClaimedJob, signal = new AbortController().signal): Promise<JsonObject> {
  return fullReconcile(needs())(job, { signal, progress: () => undefined });
}

/** A new run, from its request to its end. */
async function reconcile(): Promise<JsonObject> {
  await enqueue();
  const job = await claim();
  const result = await run(job);
  await settleJob(db, job, { state: 'succeeded', result, progress: { done: 0, total: null, bytes: 0 } });
  return result;
}

const preview = () =>
  previewPlacement({ db, ...storage.services(), limits }, {}, backgroundContext(new AbortController().signal));

describe('a full reconcile', () => {
  test('makes what the policy wants, exactly as the preview said, and a second one finds nothing to do', async () => {
    const ids = [...storage.fill(1_200, near), ...storage.fill(5, spare, 'video')];
    await setPolicy('image', [far, near], 2);
    const said = await preview();
    expect(said.classes).toEqual([
      expect.objectContaining({ fileClass: 'image', files: 1_200n, bytes: 120_000n, toCopy: 1_200n, toRemove: 0n }),
      expect.objectContaining({ fileClass: 'video', files: 5n, toCopy: 5n, toRemove: 5n }),
    ]);
    expect(await reconcile()).toMatchObject({ blobs: 1_205, copied: 1_205, removed: 5, failed: 0, sample: [] });
    for (const id of ids.slice(0, 1_200)) expect(storage.goodAt(id).sort()).toEqual([far, near].sort());
    for (const id of ids.slice(1_200)) expect(storage.goodAt(id)).toEqual([near]);
    const done = storage.done.length;
    expect(await reconcile()).toMatchObject({ blobs: 1_205, copied: 0, verified: 0, removed: 0 });
    expect(storage.done).toHaveLength(done);
    expect((await preview()).classes).toEqual([
      expect.objectContaining({ satisfied: 1_200n, toCopy: 0n }),
      expect.objectContaining({ satisfied: 5n, toRemove: 0n }),
    ]);
  });

  test('notes what happens to blobs that are worked on at once in few calls, and none of a replica twice in one', async () => {
    storage.fill(400, near);
    await setPolicy('image', [near, far], 2);
    expect(await reconcile()).toMatchObject({ copied: 400, verified: 400, failed: 0 });
    expect(storage.noted.reduce((sum, notes) => sum + notes, 0)).toBe(1_200);
    expect(storage.noted.length).toBeLessThan(600);
  });

  test('reads each copy back before anything is removed', async () => {
    const [id] = storage.fill(1, near);
    await setPolicy('image', [far], 1);
    await reconcile();
    expect(storage.done.map(({ kind, backendId }) => [kind, backendId])).toEqual([
      ['copy', far],
      ['verify', far],
      ['delete', near],
    ]);
    expect(storage.goodAt(id ?? '')).toEqual([far]);
  });

  test('interrupted anywhere goes on where it was, in another process too', async () => {
    storage.fill(1_300, near);
    await setPolicy('image', [near, far], 2);
    await enqueue();
    let copies = 0;
    const stop = new AbortController();
    storage.onCopy = () => {
      copies += 1;
      if (copies === 700) stop.abort();
    };
    const first = await claim();
    await expect(run(first, stop.signal)).rejects.toThrow();
    await settleJob(db, first, { state: 'released' });
    const before = storage.done.filter(({ kind }) => kind === 'copy').length;
    expect(before).toBeLessThan(710);
    storage.pages.length = 0;
    const result = await run(await claim());
    // The page that was interrupted is looked at again, not those before; the counts go on.
    expect(storage.pages[0]).toMatch(/^\w{8}-/);
    expect(result).toMatchObject({ blobs: 1_300, failed: 0 });
    for (const id of storage.blobs.keys()) expect(storage.goodAt(id)).toHaveLength(2);
  });

  test('that lost its job to another worker stops at the next page', async () => {
    storage.fill(1_200, near);
    await setPolicy('image', [near, far], 2);
    await enqueue();
    const slow = await claim();
    const taken: Promise<JsonObject>[] = [];
    storage.onCopy = async () => {
      storage.onCopy = () => undefined;
      await admin.query(`update jobs.jobs set lease_until = now() - interval '1 s'`);
      const second = await claim();
      taken.push(run(second));
      const isTaken = 'select 1 from placement.reconcile_run where fence = $1';
      await until(async () => (await admin.query(isTaken, [second.fence])).rows.length > 0);
    };
    await expect(run(slow)).rejects.toThrow(PostponedJob);
    expect(await Promise.all(taken)).toEqual([expect.objectContaining({ failed: 0 })]);
    for (const id of storage.blobs.keys()) expect(storage.goodAt(id)).toHaveLength(2);
  });

  test('runs alone: others wait for their turn, and end at once where a later run did all of it', async () => {
    storage.fill(3, near);
    await setPolicy('image', [near, far], 2);
    const running = await enqueue();
    const asked = await enqueue();
    const job = await claim();
    expect(job.id).toBe(running);
    let refused: unknown;
    storage.onCopy = async () => {
      if (refused) return;
      refused = true;
      const other = await claim();
      refused = await run(other).catch((error: unknown) => error);
      await settleJob(db, other, { state: 'released', delayMs: 0 });
    };
    const result = await run(job);
    expect(refused).toBeInstanceOf(PostponedJob);
    await settleJob(db, job, { state: 'succeeded', result, progress: { done: 0, total: null, bytes: 0 } });
    const waiting = await claim();
    expect(waiting).toMatchObject({ id: asked, attempt: 1 });
    expect(await run(waiting)).toEqual({ covered_by: running });
    await settleJob(db, waiting, { state: 'succeeded', result: {}, progress: { done: 0, total: null, bytes: 0 } });
    // One that was asked for later runs for itself.
    expect(await reconcile()).toMatchObject({ blobs: 3, copied: 0 });
  });

  test('records what fails and goes on, and queues a later run for it', async () => {
    const ids = storage.fill(30, near);
    await setPolicy('image', [near, far], 2);
    storage.sick.add(far);
    const result = await reconcile();
    expect(result).toMatchObject({ blobs: 30, copied: 0, failed: 30 });
    expect(result['sample']).toHaveLength(20);
    expect(result['sample']).toContainEqual({
      blob_id: ids[0],
      backend_id: far,
      code: 'unavailable',
      detail: 'The backend is away.',
    });
    const { rows } = await admin.query(
      `select params, run_after > now() as later from jobs.jobs where state = 'pending'`,
    );
    expect(rows).toEqual([{ params: { reason: 'follow_up', follow_up: 1 }, later: true }]);
    for (const id of ids) expect(storage.goodAt(id)).toEqual([near]);
    storage.sick.clear();
    expect(await reconcile()).toMatchObject({ copied: 30, failed: 0 });
  });

  test('repairs what is damaged before all else, from a copy that hashes right', async () => {
    const ids = storage.fill(600, near);
    const hurt = ids[599] ?? '';
    Object.assign(storage.replica(hurt, far), { state: ReplicaState.AVAILABLE, bytes: 'good' });
    Object.assign(storage.replica(hurt, spare), { state: ReplicaState.AVAILABLE, bytes: 'bad' });
    Object.assign(storage.replica(hurt, near), { state: ReplicaState.CORRUPT, bytes: 'bad' });
    storage.blobs.get(hurt)?.replicas.delete(far);
    Object.assign(storage.replica(hurt, far), { state: ReplicaState.AVAILABLE, bytes: 'good' });
    await setPolicy('image', [near, far], 2);
    await reconcile();
    expect(storage.done[0]).toEqual({ kind: 'copy', blobId: hurt, backendId: near });
    expect(storage.goodAt(hurt).sort()).toEqual([near, far].sort());
  });

  test('waits for a backend that is sick for a short time, and lets another stand in after a long one', async () => {
    const ids = storage.fill(4, near);
    await setPolicy('image', [near, far, spare], 2);
    await admin.query(`update registry.backends set health_status = 'unhealthy' where id = $1`, [far]);
    expect(await reconcile()).toMatchObject({ copied: 0, unsatisfiable: 4, failed: 0 });
    await admin.query(`update registry.backends set health_since = now() - interval '7 hours' where id = $1`, [far]);
    expect(await reconcile()).toMatchObject({ copied: 4, unsatisfiable: 0 });
    for (const id of ids) expect(storage.goodAt(id).sort()).toEqual([near, spare].sort());
    await admin.query(`update registry.backends set health_status = 'healthy' where id = $1`, [far]);
    expect(await reconcile()).toMatchObject({ copied: 4, removed: 4 });
    for (const id of ids) expect(storage.goodAt(id).sort()).toEqual([near, far].sort());
  });

  test('takes copies away from a disabled backend once no policy names it', async () => {
    const ids = storage.fill(4, far);
    await setPolicy('image', [far, near], 1);
    await admin.query('update registry.backends set enabled = false where id = $1', [far]);
    expect(await reconcile()).toMatchObject({ copied: 4, removed: 0 });
    await setPolicy('image', [near], 1);
    expect(await reconcile()).toMatchObject({ copied: 0, removed: 4 });
    for (const id of ids) expect(storage.goodAt(id)).toEqual([near]);
  });
});

describe('place_blob', () => {
  const followUps = async (): Promise<number> => {
    const pending = `kind = 'full_reconcile' and state = 'pending' and params->>'reason' = 'follow_up'`;
    const { rows } = await admin.query<{ count: string }>(`select count(*) from jobs.jobs where ${pending}`);
    return Number(rows[0]?.count);
  };

  const place = async (blobId: string, maxAttempts = 5): Promise<JsonObject> => {
    await enqueue('place_blob', { blob_id: blobId });
    return placeBlob(needs(), slots)(
      { ...(await claim('place_blob')), maxAttempts },
      {
        signal: new AbortController().signal,
        progress: () => undefined,
      },
    );
  };

  test('repairs one blob from the next source where the first turns out bad', async () => {
    const [id = ''] = storage.fill(1, near);
    Object.assign(storage.replica(id, spare), { state: ReplicaState.AVAILABLE, bytes: 'good' });
    storage.replica(id, near).bytes = 'bad';
    await setPolicy('image', [far, near], 2);
    expect(await place(id)).toMatchObject({ copied: 2, removed: 1, lost: false, problems: [] });
    expect(storage.goodAt(id).sort()).toEqual([far, near].sort());
  });

  test('tells of a blob that is lost, and heals it when a copy comes back', async () => {
    const [id = ''] = storage.fill(1, near);
    Object.assign(storage.replica(id, near), { state: ReplicaState.MISSING, bytes: 'none' });
    expect(await place(id)).toMatchObject({ copied: 0, lost: true });
    storage.replica(id, near).bytes = 'good';
    expect(await place(id)).toMatchObject({ lost: false, problems: [] });
    expect(storage.goodAt(id)).toEqual([near]);
  });

  test('fails, to be tried again, where a backend failed it', async () => {
    const [id = ''] = storage.fill(1, near);
    await setPolicy('image', [near, far], 2);
    storage.sick.add(far);
    await expect(place(id)).rejects.toMatchObject({ code: 'unavailable' });
    expect(await followUps()).toBe(0);
  });

  test('that failed for the last time leaves it to a full reconcile', async () => {
    const [id = ''] = storage.fill(1, near);
    await setPolicy('image', [near, far], 2);
    storage.sick.add(far);
    for (let time = 0; time < 2; time += 1) await expect(place(id, 1)).rejects.toMatchObject({ code: 'unavailable' });
    expect(await followUps()).toBe(1);
  });

  test('is put off, which is no attempt, where its backend has enough to do', async () => {
    const [id = '', ...others] = storage.fill(5, near);
    await setPolicy('image', [near, far], 2);
    const full = Promise.withResolvers<void>();
    let copying = 0;
    storage.onCopy = () => {
      copying += 1;
      return full.promise;
    };
    const running = others.slice(0, 3).map((other) => place(other));
    await until(() => Promise.resolve(copying === 3));
    await expect(place(id)).rejects.toBeInstanceOf(PostponedJob);
    full.resolve();
    await Promise.allSettled(running);
  });
});
