import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { openDatabase, queryBuilder } from '@stowage/common/database/database';
import type { Database } from '@stowage/common/database/database';
import { newId } from '@stowage/common/ids';
import { claimJobs } from '@stowage/common/jobs/queue';
import type { ClaimedJob, Json, JsonObject } from '@stowage/common/jobs/job';
import { holdRemovals } from '@stowage/common/jobs/removal-hold';
import { createLogger } from '@stowage/common/runtime/logger';
import { ReplicaState } from '@stowage/proto/stowage/catalog/v1/node';
import { startTestDatabase } from '@stowage/tests/support/test-database';
import type { TestDatabase } from '@stowage/tests/support/test-database';
import type { Kysely } from 'kysely';
import pg from 'pg';
import type { Tables } from '../tables.ts';
import { TestSides } from '../test-sides.ts';
import { TestStorage } from '../test-storage.ts';
import { fullReconcile } from './full-reconcile.ts';

const [near, far] = [newId(), newId()];
const limits = { outageGraceMs: 6 * 3_600_000, freshMs: 3_600_000 };
const lease = { holder: newId(), leaseMs: 60_000 };
const day = 86_400_000;
const old = { ageMs: 30 * day };

let server: TestDatabase;
let admin: pg.Pool;
let database: Database;
let db: Kysely<Tables>;
let storage: TestStorage;
let sides: TestSides;
let graceMs: number;

beforeAll(async () => {
  server = await startTestDatabase();
  admin = new pg.Pool({ connectionString: server.url, max: 2 });
  admin.on('error', () => undefined);
  await admin.query(
    `insert into registry.backends (id, name, type, config) values ($1, 'near', 'local_directory', '{}'), ($2, 'far', 's3', '{}')`,
    [near, far],
  );
  const logger = createLogger('test', 'silent');
  database = openDatabase({ url: server.url, service: 'placement', connections: 4, logger });
  db = queryBuilder<Tables>(database);
});
afterAll(async () => {
  await database.close();
  await admin.end();
  await server.close();
});
beforeEach(async () => {
  storage = new TestStorage();
  sides = new TestSides(storage);
  graceMs = 7 * day;
  await admin.query(
    `truncate jobs.jobs, jobs.outbox, placement.reconcile_run, placement.policies, placement.unknown_objects,
       placement.compared_backends, placement.removal_hold cascade`,
  );
  await admin.query(`update registry.backends set enabled = true, health_status = 'healthy'`);
  await admin.query("insert into placement.policies (file_class, replicas) values ('default', 1)");
  await admin.query(`insert into placement.policy_backends values ('default', 0, $1)`, [near]);
});

async function claim(params: JsonObject = {}): Promise<ClaimedJob> {
  await admin.query(
    `insert into jobs.jobs (id, kind, params, run_after) values ($1, 'full_reconcile', $2, now() - interval '1 s')`,
    [newId(), JSON.stringify(params)],
  );
  const [job] = await claimJobs(db, ['full_reconcile'], 1, lease);
  if (!job) throw new Error('there is nothing to claim');
  return job;
}

const never = new AbortController().signal;
const needs = () => ({
  db,
  services: storage.services(),
  limits,
  atOnce: 4,
  compare: { sides: sides.sides(), graceMs },
});

/** A full reconcile; gives what it tells of each backend. */
async function run(
  params: JsonObject = {},
  job?: ClaimedJob,
): Promise<{ near: JsonObject; far: JsonObject; all: JsonObject }> {
  const claimed = job ?? (await claim(params));
  const all = await fullReconcile(needs())(claimed, { signal: never, progress: () => undefined });
  await admin.query("update jobs.jobs set state = 'succeeded', finished_at = now(), lease_until = null where id = $1", [
    claimed.id,
  ]);
  return { near: of(all, near), far: of(all, far), all };
}

function of({ compared }: JsonObject, backendId: string): JsonObject {
  const found = (Array.isArray(compared) ? compared : []).find((one: Json) => isOf(one, backendId));
  if (typeof found !== 'object' || found === null || Array.isArray(found)) throw new Error('it was not compared');
  return found;
}

function isOf(one: Json, backendId: string): boolean {
  return typeof one === 'object' && one !== null && !Array.isArray(one) && one['backend_id'] === backendId;
}

function lose(id: string, backendId: string): void {
  storage.replica(id, backendId).bytes = 'none';
}

describe('a replica that is not listed', () => {
  test('is looked at, found missing, and healed by the same run', async () => {
    await admin.query(`insert into placement.policy_backends values ('default', 1, $1)`, [far]);
    await admin.query(`update placement.policies set replicas = 2`);
    const ids = storage.fill(40, near);
    for (const id of ids) Object.assign(storage.replica(id, far), { state: ReplicaState.AVAILABLE, bytes: 'good' });
    const [lost = '', cut = ''] = ids;
    lose(lost, near);
    storage.replica(cut, far).bytes = 'bad';
    sides.truncated.add(cut);
    const { near: here, far: there, all } = await run();
    expect(here).toMatchObject({ compared: true, reason: null, known: 40, listed: 39, missing: 1, failed: 0 });
    expect(there).toMatchObject({ compared: true, known: 40, listed: 40, missing: 0, corrupt: 1 });
    expect(all).toMatchObject({ copied: 2, failed: 0, blobs: 40 });
    expect([storage.replica(lost, near).bytes, storage.replica(cut, far).bytes]).toEqual(['good', 'good']);
    expect([storage.goodAt(lost), storage.goodAt(cut)]).toEqual([
      [near, far],
      [near, far],
    ]);
  });

  test('proves nothing where the store itself still has it, or can not be asked', async () => {
    const [gone = '', ...rest] = storage.fill(10, near);
    lose(gone, near);
    const job = await claim();
    const services = storage.services();
    const given = needs();
    const blobs = {
      ...given.services.blobs,
      verifyBlob: async (...call: Parameters<typeof services.blobs.verifyBlob>) => {
        if (call[0].key?.endsWith(gone)) throw new Error('the store does not answer');
        return services.blobs.verifyBlob(...call);
      },
    };
    const result = await fullReconcile({ ...given, services: { ...given.services, blobs } })(job, {
      signal: never,
      progress: () => undefined,
    });
    expect(of(result, near)).toMatchObject({ compared: true, missing: 0, failed: 1, looked_at: 1 });
    expect(storage.replica(gone, near).state).toBe(ReplicaState.AVAILABLE);
    expect(rest.every((id) => storage.goodAt(id).length === 1)).toBe(true);
  });
});

describe('what is listed without a replica', () => {
  test('of a known blob gets one, and goes where it is too many', async () => {
    const [twice = ''] = storage.fill(5, near);
    sides.plant(far, { size: 100 }, twice);
    const { far: there, all } = await run();
    expect(there).toMatchObject({ adopted: 1, unknown: 0 });
    expect(all).toMatchObject({ removed: 1, copied: 0 });
    expect(storage.done).toEqual([{ kind: 'delete', blobId: twice, backendId: far }]);
    expect(storage.goodAt(twice)).toEqual([near]);
  });

  test('of a known blob gets none on a disabled backend: what was forgotten there stays so', async () => {
    const [twice = ''] = storage.fill(5, near);
    sides.plant(far, { size: 100 }, twice);
    await admin.query(`update registry.backends set enabled = false where id = $1`, [far]);
    expect((await run()).far).toMatchObject({ compared: true, adopted: 0, unknown: 0 });
    expect(storage.done).toEqual([]);
    await admin.query(`update registry.backends set enabled = true where id = $1`, [far]);
    expect((await run()).far).toMatchObject({ adopted: 1 });
  });

  test('of an upload that is not finished is not told of, and never touched', async () => {
    graceMs = 0;
    storage.fill(20, near);
    sides.unfinished.add(sides.plant(near, old));
    for (let round = 0; round < 3; round += 1) {
      expect((await run()).near).toMatchObject({ unknown: 0, removed: 0 });
    }
    expect(sides.unknownOn(near).size).toBe(1);
  });
});

describe('an object that nobody knows', () => {
  const ageSightings = (): Promise<unknown> =>
    admin.query(`update placement.unknown_objects set first_seen = now() - interval '8 d'`);

  test('goes once two whole listings of different runs showed it and it is old by both clocks', async () => {
    storage.fill(30, near);
    const [orphan, fresh] = [sides.plant(near, old), sides.plant(near, { ageMs: 6 * day })];
    const first = await run();
    expect(first.near).toMatchObject({ listed: 32, unknown: 2, unknown_bytes: 14, removed: 0, kept: null });
    expect(first.near['unknown_sample']).toHaveLength(2);
    // Seen twice, and older than the grace time on its backend: but not known for as long.
    expect((await run()).near).toMatchObject({ unknown: 2, removed: 0 });
    await ageSightings();
    expect((await run()).near).toMatchObject({ unknown: 2, removed: 1, removed_bytes: 7 });
    expect(sides.condemned).toEqual([orphan]);
    expect((await run()).near).toMatchObject({ unknown: 1, removed: 0 });
    const { rows } = await admin.query('select key, runs from placement.unknown_objects');
    expect(rows).toEqual([{ key: `blobs/${fresh.slice(-2)}/${fresh}`, runs: 4 }]);
  });

  test('stays after one sighting, and where a listing in between broke off or did not show it', async () => {
    graceMs = 0;
    storage.fill(30, near);
    const orphan = sides.plant(near, old);
    await run();
    sides.unknownOn(near).delete(orphan);
    await run();
    sides.plant(near, old, orphan);
    expect((await run()).near).toMatchObject({ unknown: 1, removed: 0 });
    sides.pages.length = 0;
    sides.unmarkedAfter.set(near, 9);
    sides.unmarkedAfter.set(far, 9);
    expect((await run()).near).toMatchObject({ compared: false, reason: 'There is no marker.', removed: 0 });
    expect(sides.unknownOn(near).size).toBe(1);
    sides.unmarkedAfter.clear();
    expect((await run()).near).toMatchObject({ compared: true, removed: 1 });
  });

  test('is seen once by a run that goes on after a crash, where it was', async () => {
    graceMs = 0;
    storage.fill(30, near);
    sides.plant(near, old);
    const job = await claim();
    const stop = new AbortController();
    sides.onPage = () => {
      if (sides.pages.length === 6) stop.abort();
    };
    const steps = { ...needs().compare, turnMs: 0 };
    const broken = fullReconcile({ ...needs(), compare: steps })(job, {
      signal: stop.signal,
      progress: () => undefined,
    });
    await expect(broken).rejects.toThrow();
    await admin.query(`update jobs.jobs set fence = fence + 1 where id = $1`, [job.id]);
    const again = { ...job, fence: String(Number(job.fence) + 1) };
    const { pages } = sides;
    const before = pages.length;
    expect((await run({}, again)).near).toMatchObject({ unknown: 1, removed: 0, listed: 31, known: 30 });
    expect(pages[before]).not.toBe(`${near} `);
    expect((await run()).near).toMatchObject({ removed: 1 });
  });

  test('stays where more than a tenth of all would go, until an admin says so', async () => {
    graceMs = 0;
    storage.fill(8, near);
    sides.plant(near, old);
    await run();
    expect((await run()).near).toMatchObject({ unknown: 1, removed: 0, kept: 'too_many' });
    expect((await run({ remove_unknown: true })).near).toMatchObject({ removed: 1, kept: null });
  });

  test('goes by an admin’s word also where another run was asked for before, and did all but that', async () => {
    graceMs = 0;
    storage.fill(8, near);
    sides.plant(near, old);
    await run();
    const first = await claim();
    await admin.query(
      `insert into jobs.jobs (id, kind, params) values ($1, 'full_reconcile', '{"remove_unknown": true}'), ($2, 'full_reconcile', '{}')`,
      [newId(), newId()],
    );
    expect((await run({}, first)).near).toMatchObject({ removed: 0, kept: 'too_many' });
    const waiting = await claimJobs(db, ['full_reconcile'], 2, lease);
    expect(waiting).toHaveLength(2);
    const [word, plain] = waiting.sort(
      (one, other) => Number('remove_unknown' in other.params) - Number('remove_unknown' in one.params),
    );
    if (!word || !plain) throw new Error('two wait');
    const covered = await fullReconcile(needs())(plain, { signal: never, progress: () => undefined });
    expect(covered).toEqual({ covered_by: first.id });
    expect((await run({}, word)).near).toMatchObject({ removed: 1 });
  });

  test('stays where no blob is known at all, whatever an admin says', async () => {
    graceMs = 0;
    sides.plant(near, old);
    await run();
    expect((await run({ remove_unknown: true })).near).toMatchObject({ unknown: 1, removed: 0 });
  });

  test('stays while removals are held, until an admin says so', async () => {
    graceMs = 0;
    storage.fill(30, near);
    sides.plant(near, old);
    await run();
    await db.transaction().execute((trx) => holdRemovals(trx, day));
    expect((await run()).near).toMatchObject({ unknown: 1, removed: 0, kept: 'removals_held' });
    expect((await run({ remove_unknown: true })).near).toMatchObject({ removed: 1 });
  });
});

describe('a hold after an import', () => {
  test('keeps surplus copies, and says so, until it is over', async () => {
    const ids = storage.fill(3, near);
    for (const id of ids) Object.assign(storage.replica(id, far), { state: ReplicaState.AVAILABLE, bytes: 'good' });
    await db.transaction().execute((trx) => holdRemovals(trx, day));
    const held = await run();
    expect(held.all).toMatchObject({ removed: 0, held: 3, unsatisfiable: 0, failed: 0 });
    expect(held.all['sample']).toMatchObject([{ backend_id: far, code: 'removals_held' }, {}, {}]);
    await admin.query(`update placement.removal_hold set removals_held_until = now()`);
    expect((await run()).all).toMatchObject({ removed: 3, held: 0 });
  });
});

describe('a backend', () => {
  test('that is unhealthy or can not be listed is told of, and the others are compared', async () => {
    const [lost = ''] = storage.fill(10, near);
    lose(lost, near);
    storage.sick.add(far);
    const first = await run();
    expect(first.far).toMatchObject({ compared: false, reason: 'The backend is away.' });
    expect(first.near).toMatchObject({ compared: true, missing: 1 });
    await admin.query(`update registry.backends set health_status = 'unhealthy' where id = $1`, [far]);
    expect((await run()).far).toMatchObject({ compared: false, reason: 'The backend is unhealthy.' });
  });

  test('that lost its marker has nothing marked missing and nothing removed', async () => {
    graceMs = 0;
    const ids = storage.fill(10, near);
    sides.plant(near, old);
    await run();
    for (const id of ids) lose(id, near);
    sides.unmarkedAfter.set(near, 0);
    storage.sick.add(near);
    expect((await run()).near).toMatchObject({ compared: false, missing: 0, removed: 0 });
    for (const id of ids) expect(storage.replica(id, near).state).toBe(ReplicaState.AVAILABLE);
  });

  test('that is disabled is compared too', async () => {
    storage.fill(4, near);
    const [lost = ''] = storage.fill(1, far);
    lose(lost, far);
    await admin.query(`update registry.backends set enabled = false where id = $1`, [far]);
    expect((await run()).far).toMatchObject({ compared: true, missing: 1 });
  });
});
