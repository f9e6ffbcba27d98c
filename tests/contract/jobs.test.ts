import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { expectStatus, logIn, until } from '@stowage/tests/support/client';
import type { Client, Json } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { startOwnSystem } from '@stowage/tests/support/own-system';
import type { OwnSystem } from '@stowage/tests/support/own-system';
import { expectProblem, pointersOf } from '@stowage/tests/support/problems';
import { unknownId } from '@stowage/tests/support/routes';

const housekeeping = ['purge_recycle_bin', 'expire_uploads'];
const time = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
let system: OwnSystem;
let database: pg.Client;
let root: Client;

beforeAll(async () => {
  system = await startOwnSystem(mode(), { STOWAGE_JOB_INTERVAL: '1s' });
  database = new pg.Client({ connectionString: system.databaseUrl });
  await database.connect();
  root = await logIn(system.url);
});

afterAll(async () => {
  await database.end();
  await system.close();
});

async function list(query = ''): Promise<Json[]> {
  return expectStatus(await root.get(`/api/jobs${query}`), 200).json['items'];
}

/** Puts a job into the queue without waking anybody. */
async function insertJob(kind: string, columns: Record<string, unknown> = {}): Promise<string> {
  const hex = `${Date.now().toString(16).padStart(12, '0')}7${randomBytes(2).toString('hex').slice(1)}8${randomBytes(8).toString('hex').slice(1)}`;
  const id = [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
  const all = { id, kind, ...columns };
  const names = Object.keys(all).join(', ');
  const places = Object.keys(all).map((_, i) => `$${i + 1}`);
  await database.query(`insert into jobs.jobs (${names}) values (${places.join(', ')})`, Object.values(all));
  return id;
}

function insertFailed(kind: string): Promise<string> {
  return insertJob(kind, {
    state: 'failed',
    attempt: 5,
    error_code: 'unavailable',
    error_detail: 'It did not work.',
    started_at: new Date(),
    finished_at: new Date(),
  });
}

test('the full reconcile that nobody asked for outlives as many crashes as one that somebody did', async () => {
  const planned = await until(async () => {
    return (await list('?kind=full_reconcile')).find((job) => job['params'].reason === 'schedule') ?? null;
  });
  const { job } = expectStatus(await root.post('/api/jobs/enqueue-full-reconcile'), 202).json;
  expect(planned['max_attempts']).toBe(job['max_attempts']);
});

describe('Jobs that the service makes for itself', () => {
  test('run at their interval and show when they ran and what came of it', async () => {
    for (const kind of housekeeping) {
      const [job] = await until(async () => {
        // Workers look every few seconds unless somebody rings.
        expectStatus(await root.post('/api/jobs/run-pending', { kinds: [kind] }), 200);
        const done = await list(`?kind=${kind}&state=succeeded`);
        return done.length >= 2 ? done : null;
      });
      expect(job).toEqual({
        id: expect.stringMatching(/^[0-9a-f-]{14}7/),
        kind,
        state: 'succeeded',
        attempt: 1,
        max_attempts: expect.any(Number),
        run_after: expect.stringMatching(time),
        params: {},
        progress: { done: expect.any(Number), total: job?.['progress'].total, bytes: expect.any(Number) },
        result: expect.any(Object),
        error: null,
        trace_id: null,
        created_at: expect.stringMatching(time),
        started_at: expect.stringMatching(time),
        finished_at: expect.stringMatching(time),
      });
      expect(Date.parse(job?.['finished_at'])).toBeGreaterThanOrEqual(Date.parse(job?.['started_at']));
      expect(Date.parse(job?.['started_at'])).toBeGreaterThanOrEqual(Date.parse(job?.['run_after']));
    }
  });

  test('are listed newest first, page by page, and read alone the same', async () => {
    await until(async () => (await list()).length >= 3);
    const ids: string[] = [];
    let cursor = '';
    do {
      const { json } = expectStatus(await root.get(`/api/jobs?limit=1&cursor=${cursor}`), 200);
      for (const { id } of json['items']) ids.push(id);
      cursor = json['next_cursor'] ?? '';
    } while (cursor !== '' && ids.length < 3);
    expect(ids).toEqual([...ids].sort().reverse());
    expect(new Set(ids).size).toBe(ids.length);
    const [done] = await list('?state=succeeded&limit=1');
    expect(expectStatus(await root.get(`/api/jobs/${done?.['id']}`), 200).json).toEqual(done);
  });

  test('can be chosen by state and by kind', async () => {
    const failed = await insertFailed('verify_blob');
    expect((await list('?state=failed')).map((job) => job['id'])).toContain(failed);
    expect((await list('?state=failed&kind=verify_blob')).map((job) => job['id'])).toContain(failed);
    expect((await list('?state=failed&kind=purge_recycle_bin')).map((job) => job['id'])).not.toContain(failed);
    expect(await list('?state=cancelled')).toEqual([]);
    for (const job of await list('?kind=purge_recycle_bin')) expect(job['kind']).toBe('purge_recycle_bin');
    expect(await list('?kind=no_such_kind')).toEqual([]);
  });

  test.each(['?state=done', '?state=', '?kind=DROP%20TABLE', '?kind=', '?state=failed&state=pending'])(
    '%s is 400',
    async (query) => {
      expectProblem(await root.get(`/api/jobs${query}`), 400, 'validation_failed');
    },
  );
});

describe('Running what is due', () => {
  test('waits for it, and tells what came of it', async () => {
    // A worker may be quicker to it than the request: then the next try.
    await until(async () => {
      const id = await insertJob('purge_recycle_bin');
      const { json } = expectStatus(
        await root.post('/api/jobs/run-pending', { kinds: ['purge_recycle_bin'], wait_seconds: 20 }),
        200,
      );
      expect(json).toEqual({ selected: expect.any(Number), succeeded: json['selected'], failed: 0, running: 0 });
      if (json['selected'] === 0) return false;
      return (await root.get(`/api/jobs/${id}`)).json['state'] === 'succeeded';
    });
  });

  test('does not wait where it was not asked to', async () => {
    const start = performance.now();
    await insertJob('nobody_works_this');
    const { json } = expectStatus(await root.post('/api/jobs/run-pending', { kinds: ['nobody_works_this'] }), 200);
    expect(json).toEqual({ selected: 1, succeeded: 0, failed: 0, running: 1 });
    expect(performance.now() - start).toBeLessThan(2_000);
    await database.query(`delete from jobs.jobs where kind = 'nobody_works_this'`);
  });

  test('takes at most as many as it was told, and none that is not due', async () => {
    for (let i = 0; i < 3; i += 1) await insertJob('nobody_works_that');
    await insertJob('nobody_works_that', { run_after: new Date(Date.now() + 3_600_000) });
    const run = async (body: Json): Promise<number> =>
      expectStatus(await root.post('/api/jobs/run-pending', { kinds: ['nobody_works_that'], ...body }), 200).json[
        'selected'
      ];
    expect(await run({ limit: 2 })).toBe(2);
    expect(await run({})).toBe(3);
    await database.query(`delete from jobs.jobs where kind = 'nobody_works_that'`);
    expect(await run({ wait_seconds: 5 })).toBe(0);
  });

  test.each([
    [{ wait_seconds: 61 }, '/wait_seconds'],
    [{ wait_seconds: -1 }, '/wait_seconds'],
    [{ wait_seconds: '5' }, '/wait_seconds'],
    [{ limit: 0 }, '/limit'],
    [{ limit: 1001 }, '/limit'],
    [{ kinds: 'purge_recycle_bin' }, '/kinds'],
    [{ kinds: [1] }, '/kinds/0'],
    [{ kind: 'purge_recycle_bin' }, '/kind'],
  ])('%j is 400', async (body, pointer) => {
    const problem = expectProblem(await root.post('/api/jobs/run-pending', body), 400, 'validation_failed');
    expect(pointersOf(problem)).toContain(pointer);
  });
});

describe('Retrying', () => {
  test('a failed job runs again and succeeds', async () => {
    const id = await insertFailed('purge_recycle_bin');
    expect((await root.get(`/api/jobs/${id}`)).json).toMatchObject({
      state: 'failed',
      error: { code: 'unavailable', detail: 'It did not work.' },
    });
    const { json } = expectStatus(await root.post(`/api/jobs/${id}/retry`), 200);
    expect(json).toMatchObject({ id, state: 'pending', finished_at: null });
    const done = await until(async () => {
      const job = (await root.get(`/api/jobs/${id}`)).json;
      return job['state'] === 'succeeded' ? job : null;
    });
    expect(done['error']).toBeNull();
  });

  test('a job that did not fail is 409', async () => {
    const [done] = await until(async () => {
      const jobs = await list('?state=succeeded&limit=1');
      return jobs.length > 0 ? jobs : null;
    });
    expectProblem(await root.post(`/api/jobs/${done?.['id']}/retry`), 409, 'state_conflict');
    const later = await insertJob('purge_recycle_bin', { run_after: new Date(Date.now() + 3_600_000) });
    expectProblem(await root.post(`/api/jobs/${later}/retry`), 409, 'state_conflict');
  });

  test('twice at the same moment, it is retried once', async () => {
    const id = await insertFailed('nobody_works_this_either');
    const answers = await Promise.all([1, 2, 3].map(() => root.post(`/api/jobs/${id}/retry`)));
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409, 409]);
    await database.query('delete from jobs.jobs where id = $1', [id]);
  });

  test('with an Idempotency-Key answers the first result again', async () => {
    const id = await insertFailed('nobody_works_this_either');
    const headers = { 'idempotency-key': 'retry-once' };
    const first = expectStatus(await root.post(`/api/jobs/${id}/retry`, {}, headers), 200);
    expect(expectStatus(await root.post(`/api/jobs/${id}/retry`, {}, headers), 200).json).toEqual(first.json);
    await database.query('delete from jobs.jobs where id = $1', [id]);
  });

  test('an unknown job is 404', async () => {
    expectProblem(await root.post(`/api/jobs/${unknownId}/retry`), 404, 'not_found');
    expectProblem(await root.get(`/api/jobs/${unknownId}`), 404, 'not_found');
    expectProblem(await root.get('/api/jobs/latest'), 404, 'not_found');
  });
});

describe('A job that can not be done', () => {
  test('fails with a cause and does not keep others from running', async () => {
    const id = await insertJob('verify_blob', { params: JSON.stringify({ nonsense: true }), max_attempts: 1 });
    expectStatus(await root.post('/api/jobs/run-pending', { kinds: ['verify_blob'], wait_seconds: 20 }), 200);
    const failed = await until(async () => {
      const job = (await root.get(`/api/jobs/${id}`)).json;
      return job['state'] === 'failed' ? job : null;
    });
    expect(failed['error']).toEqual({ code: expect.stringMatching(/^[a-z_]+$/), detail: expect.stringMatching(/\S/) });
    expect(failed['finished_at']).toMatch(time);
    const before = (await list('?kind=expire_uploads&state=succeeded'))[0]?.['id'];
    await until(async () => {
      expectStatus(await root.post('/api/jobs/run-pending', { kinds: ['expire_uploads'] }), 200);
      return (await list('?kind=expire_uploads&state=succeeded'))[0]?.['id'] !== before;
    });
  });
});
