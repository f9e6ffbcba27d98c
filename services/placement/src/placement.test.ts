import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { AppError } from '@stowage/common/errors';
import { newId } from '@stowage/common/ids';
import type { CallContext } from '@stowage/common/rpc/context';
import { VerifyResult } from '@stowage/proto/stowage/backend_registry/v1/blob';
import { ReplicaState } from '@stowage/proto/stowage/catalog/v1/node';
import type { RunPendingResponse } from '@stowage/proto/stowage/placement/v1/job';
import { until } from '@stowage/tests/support/client';
import { around, farId, localId } from './test-neighbours.ts';
import { startTestPlacement } from './test-placement.ts';
import type { TestPlacement } from './test-placement.ts';

const user = newId();

let placement: TestPlacement;
let pool: TestPlacement['pool'];
let policies: TestPlacement['policies'];
let jobs: TestPlacement['jobs'];

beforeAll(async () => {
  placement = await startTestPlacement();
  ({ pool, policies, jobs } = placement);
});
afterAll(() => placement.close());
beforeEach(async () => {
  await pool.query('truncate jobs.jobs, jobs.outbox, jobs.idempotency_keys');
  Object.assign(around, {
    sick: new Set(),
    replicas: [],
    forgotten: [],
    removing: async () => undefined,
    verdict: VerifyResult.GOOD,
    settled: [],
  });
});

function as(key?: string, fingerprint = 'f'): CallContext {
  const idempotency = key === undefined ? null : { key, route: 'POST /jobs', fingerprint };
  return {
    requestId: newId(),
    actor: { userId: user, username: 'ann', role: 'admin' },
    idempotency,
    signal: new AbortController().signal,
  };
}

async function refusalOf(call: Promise<unknown>): Promise<AppError> {
  const error = await call.then(
    () => null,
    (thrown: unknown) => thrown,
  );
  if (error instanceof AppError) return error;
  throw new Error('the call was not refused');
}

async function insert(columns: Record<string, unknown>): Promise<string> {
  const id = newId();
  const all = { id, kind: 'purge_recycle_bin', ...columns };
  const places = Object.keys(all).map((_, index) => `$${index + 1}`);
  await pool.query(
    `insert into jobs.jobs (${Object.keys(all).join(', ')}) values (${places.join(', ')})`,
    Object.values(all),
  );
  return id;
}

const failed = {
  state: 'failed',
  attempt: 5,
  finished_at: new Date(),
  error_code: 'unavailable',
  error_detail: 'Away.',
};

/** Runs what is due and waits for it. */
async function run(kinds: string[], context = as()): Promise<RunPendingResponse> {
  return jobs.runPending({ kinds, limit: 100, waitSeconds: 8 }, context);
}

describe('policies', () => {
  test('a class with a policy of its own has that, with the backends in order', async () => {
    await pool.query(`insert into placement.policies (file_class, replicas) values ('video', 2)`);
    await pool.query(`insert into placement.policy_backends values ('video', 1, $1), ('video', 0, $2)`, [
      localId,
      farId,
    ]);
    expect((await policies.getPolicy({ fileClass: 'video' }, as())).policy).toMatchObject({
      fileClass: 'video',
      backendIds: [farId, localId],
      replicas: 2,
    });
    expect((await policies.getPolicy({ fileClass: 'default' }, as())).policy?.fileClass).toBe('default');
  });
});

describe('the list of jobs', () => {
  test('is newest first, page by page, each job once', async () => {
    const ids = [];
    for (let index = 0; index < 7; index += 1) ids.unshift(await insert({}));
    const seen: string[] = [];
    let cursor: string | undefined = '';
    while (cursor !== undefined) {
      const page: Awaited<ReturnType<typeof jobs.listJobs>> = await jobs.listJobs({ limit: 3, cursor }, as());
      seen.push(...page.items.map(({ id }) => id));
      cursor = page.nextCursor;
      // One that comes in between neither shifts nor repeats another.
      await insert({});
    }
    expect(seen).toEqual(ids);
  });

  test('filters by state and kind', async () => {
    const wanted = await insert({ ...failed, kind: 'expire_uploads' });
    await insert({ ...failed });
    await insert({ kind: 'expire_uploads' });
    const ask = async (state: string, kind: string): Promise<number> =>
      (await jobs.listJobs({ state, kind, limit: 9 }, as())).items.length;
    expect(await ask('failed', '')).toBe(2);
    expect(await ask('', 'expire_uploads')).toBe(2);
    expect(
      (await jobs.listJobs({ state: 'failed', kind: 'expire_uploads', limit: 9 }, as())).items.map(({ id }) => id),
    ).toEqual([wanted]);
  });

  test('refuses a made-up cursor', async () => {
    for (const cursor of ['x', Buffer.from('["x"]').toString('base64url'), Buffer.from('[1]').toString('base64url')]) {
      expect((await refusalOf(jobs.listJobs({ limit: 3, cursor }, as()))).code).toBe('validation_failed');
    }
  });

  test('shows a job with all that is known of it', async () => {
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    const id = await insert({ ...failed, params: '{"a":1}', progress_done: 3, progress_bytes: 2 ** 40, traceparent });
    expect((await jobs.getJob({ id }, as())).job).toMatchObject({
      id,
      state: 'failed',
      attempt: 5,
      maxAttempts: 5,
      params: { a: 1 },
      progress: { done: 3n, bytes: 2n ** 40n },
      error: { code: 'unavailable', detail: 'Away.' },
      traceId: '0af7651916cd43dd8448eb211c80319c',
    });
    expect((await refusalOf(jobs.getJob({ id: newId() }, as()))).code).toBe('not_found');
    expect((await refusalOf(jobs.getJob({ id: 'x' }, as()))).code).toBe('not_found');
  });
});

describe('retrying', () => {
  test('gives a failed job all its attempts again, once for each key', async () => {
    const id = await insert({ ...failed, dedupe_key: 'k' });
    await insert({ dedupe_key: 'k' });
    const { job } = await jobs.retryJob({ id }, as('r1'));
    expect(job).toMatchObject({ state: 'pending', attempt: 0 });
    expect(job?.finishedAt).toBeUndefined();
    const { rows } = await pool.query(`select subject from jobs.outbox where data->>'id' = $1`, [id]);
    expect(rows).toEqual([{ subject: 'stowage.jobs.purge_recycle_bin.pending' }]);
    expect((await jobs.retryJob({ id }, as('r1'))).job).toEqual(job);
    expect((await refusalOf(jobs.retryJob({ id }, as('r2')))).code).toBe('state_conflict');
    expect((await refusalOf(jobs.retryJob({ id: newId() }, as()))).code).toBe('not_found');
  });

  test('by many at once is one retry', async () => {
    const id = await insert(failed);
    const outcomes = await Promise.allSettled(Array.from({ length: 6 }, () => jobs.retryJob({ id }, as())));
    expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
  });
});

describe('running what is pending', () => {
  test('waits for it and counts; an attempt that failed counts as failed, though it will be tried again', async () => {
    around.replicas = [{ backendId: farId, key: 'k' }];
    around.sick.add(farId);
    await insert({ kind: 'remove_blob', params: JSON.stringify({ blob_id: newId() }) });
    await insert({ kind: 'remove_blob' });
    await insert({ kind: 'prune_history' });
    await insert({ kind: 'prune_history', run_after: new Date(Date.now() + 3_600_000) });
    expect(await run(['remove_blob', 'prune_history'])).toMatchObject({
      selected: 3,
      succeeded: 1,
      failed: 2,
      running: 0,
    });
  });

  test('says what is still on its way where nobody works it, at the end of the wait', async () => {
    await insert({ kind: 'expire_uploads' });
    const answer = await jobs.runPending({ kinds: [], limit: 10, waitSeconds: 1 }, as());
    expect(answer).toMatchObject({ selected: 1, succeeded: 0, failed: 0, running: 1 });
    expect(await jobs.runPending({ kinds: ['verify_blob'], limit: 10, waitSeconds: 5 }, as())).toMatchObject({
      selected: 0,
      running: 0,
    });
  });

  test('with a key answers the first result again', async () => {
    await insert({ kind: 'prune_history' });
    const first = await run(['prune_history'], as('p1'));
    expect(first).toMatchObject({ selected: 1, succeeded: 1 });
    await insert({ kind: 'prune_history' });
    expect(await run(['prune_history'], as('p1'))).toEqual(first);
    expect((await refusalOf(run(['prune_history'], as('p1', 'g')))).code).toBe('idempotency_key_reused');
  });
});

describe('the jobs that placement works', () => {
  test('remove_blob removes no further blob once removals are held', async () => {
    around.replicas = [{ backendId: localId, key: 'k' }];
    let removed = 0;
    around.removing = async () => {
      removed += 1;
      await pool.query(`insert into placement.removal_hold (removals_held_until) values (now() + interval '1 day')`);
    };
    const id = await insert({ kind: 'remove_blob', params: JSON.stringify({ unknown_blobs: [newId(), newId()] }) });
    await run(['remove_blob']);
    await pool.query('delete from placement.removal_hold');
    expect(removed).toBe(1);
    expect((await jobs.getJob({ id }, as())).job).toMatchObject({ state: 'pending' });
  });

  test('remove_blob frees every backend that answers, and the sick one later', async () => {
    around.replicas = [
      { backendId: farId, key: 'k' },
      { backendId: localId, key: 'k' },
    ];
    around.sick.add(farId);
    const id = await insert({ kind: 'remove_blob', params: JSON.stringify({ blob_id: newId() }) });
    expect((await run(['remove_blob'])).failed).toBe(1);
    expect(around.forgotten).toEqual([localId]);
    around.sick.clear();
    await pool.query("update jobs.jobs set run_after = now() - interval '1 second' where id = $1", [id]);
    await run(['remove_blob']);
    expect(around.forgotten).toEqual([localId, farId]);
    expect((await jobs.getJob({ id }, as())).job).toMatchObject({ state: 'succeeded', result: { removed: 1 } });
  });

  test('health_check of a registry that does not answer is made again', async () => {
    around.sick.add(farId);
    const made = await jobs.enqueueHealthChecks({}, as());
    const id = made.jobs.find(({ params }) => params?.['backend_id'] === farId)?.id ?? '';
    const read = async (): Promise<string | undefined> => (await jobs.getJob({ id }, as())).job?.state;
    await until(async () => {
      const { rowCount } = await pool.query('select from jobs.jobs where id = $1 and error_code is not null', [id]);
      return rowCount === 1;
    });
    expect(['pending', 'running']).toContain(await read());
    around.sick.clear();
    await until(async () => (await read()) === 'succeeded');
  });

  test.each([
    [VerifyResult.GOOD, ReplicaState.AVAILABLE, 'good'],
    [VerifyResult.CORRUPT, ReplicaState.CORRUPT, 'corrupt'],
    [VerifyResult.MISSING, ReplicaState.MISSING, 'missing'],
  ])('verify_blob notes what reading showed (%s)', async (result, state, verdict) => {
    around.verdict = result;
    const params = { blob_id: newId(), backend_id: farId, key: 'k', size: 2 ** 40, sha256: 'ab'.repeat(32) };
    const id = await insert({ kind: 'verify_blob', params: JSON.stringify(params) });
    expect((await run(['verify_blob'])).succeeded).toBe(1);
    expect(around.settled).toEqual([state]);
    expect((await jobs.getJob({ id }, as())).job?.result).toEqual({ verdict });
    const { rows } = await pool.query(`select params from jobs.jobs where kind = 'place_blob'`);
    expect(rows).toEqual(verdict === 'good' ? [] : [{ params: { blob_id: params.blob_id } }]);
  });

  test('sweep tells what was left on a backend, and needs none of one that is gone', async () => {
    for (const [backendId, result] of [
      [localId, { temporaries: 2, staged: 1 }],
      [newId(), { gone: true }],
    ]) {
      const id = await insert({ kind: 'sweep', params: JSON.stringify({ backend_id: backendId }) });
      expect((await run(['sweep'])).succeeded).toBe(1);
      expect((await jobs.getJob({ id }, as())).job?.result).toEqual(result);
    }
  });

  test('prune_history drops what was kept long enough, in batches, and nothing else', async () => {
    const days = (count: number): Date => new Date(Date.now() - count * 86_400_000);
    await pool.query(
      `insert into jobs.jobs (id, kind, state, finished_at) select gen_random_uuid(), 'verify_blob', 'succeeded', $1 from generate_series(1, 2500)`,
      [days(15)],
    );
    const kept = [
      await insert({ state: 'succeeded', finished_at: days(13) }),
      await insert({ ...failed, finished_at: days(89) }),
      await insert({ run_after: days(-1), created_at: days(100) }),
    ];
    await insert({ state: 'cancelled', finished_at: days(15) });
    await insert({ ...failed, finished_at: days(91) });
    // Another relay is at it, and got nowhere yet.
    await pool.query(
      `update jobs.outbox_relay set holder = $1, fence = fence + 1, lease_until = now() + interval '1 hour'`,
      [newId()],
    );
    await pool.query(`insert into jobs.outbox (subject, data, created_at) values ('waits', '{}', $1)`, [days(100)]);
    for (const age of [8, 6])
      await pool.query(
        `insert into jobs.outbox (subject, data, created_at, published_at) values ('s', '{}', $1, now())`,
        [days(age)],
      );
    for (const age of [2, 0.5]) {
      await pool.query(
        `insert into jobs.idempotency_keys (user_id, route, key, fingerprint, response, created_at) values ($1, 'r', $2, 'f', '', $3)`,
        [user, newId(), days(age)],
      );
    }
    const id = await insert({ kind: 'prune_history' });
    await run(['prune_history']);
    expect((await jobs.getJob({ id }, as())).job?.result).toEqual({
      jobs: 2501,
      failed_jobs: 1,
      idempotency_keys: 1,
      events: 1,
    });
    const { rows } = await pool.query<{ id: string }>('select id from jobs.jobs order by id');
    expect(rows.map((row) => row.id)).toEqual([...kept, id].sort());
    const { rowCount } = await pool.query(`select from jobs.outbox where subject = 'waits'`);
    expect(rowCount).toBe(1);
  });
});
