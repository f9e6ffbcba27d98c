import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { startTestDatabase } from '@stowage/tests/support/test-database';
import type { TestDatabase } from '@stowage/tests/support/test-database';
import { sql } from 'kysely';
import type { Kysely } from 'kysely';
import { openDatabase, queryBuilder } from '../database/database.ts';
import type { Database } from '../database/database.ts';
import { inTransaction } from '../database/transaction.ts';
import { unavailable } from '../errors.ts';
import { newId } from '../ids.ts';
import { createLogger } from '../runtime/logger.ts';
import { enqueueJobs } from './bulk.ts';
import type { BulkJob } from './bulk.ts';
import { enqueueJob, wakeWorkers } from './enqueue.ts';
import type { NewJob } from './enqueue.ts';
import { PermanentJobError } from './job.ts';
import type { ClaimedJob, JobHandler } from './job.ts';
import { claimJobs, renewLease, settleJob } from './queue.ts';
import { Schedule } from './schedule.ts';
import { WakeListener } from './wake-listener.ts';
import { Worker } from './worker.ts';

interface Row {
  state: string;
  attempt: number;
  fence: string;
  error_code: string | null;
  error_detail: string | null;
  result: unknown;
  progress_done: string;
  lease_until: Date | null;
  run_after: Date;
}

const kind = 'remove_blob';
const logger = createLogger('test', 'silent');
const lease = { holder: newId(), leaseMs: 60_000 };
const progress = { done: 0, total: null, bytes: 0 };

let server: TestDatabase;
let database: Database;
let db: Kysely<unknown>;
let wake: WakeListener;
const workers = new Set<Worker<unknown>>();

beforeAll(async () => {
  server = await startTestDatabase();
  database = openDatabase({ url: server.url, service: 'placement', connections: 20, logger });
  db = queryBuilder(database);
  wake = new WakeListener(server.url, logger);
  wake.start();
});
afterAll(async () => {
  await wake.close();
  await database.close();
  await server.close();
});
beforeEach(async () => {
  await Promise.all([...workers].map((worker) => worker.stop()));
  workers.clear();
  await sql`delete from jobs.jobs`.execute(db);
  await sql`delete from jobs.outbox`.execute(db);
});

async function enqueue(job: Partial<NewJob> = {}): Promise<string> {
  const id = await inTransaction(db, (trx) => enqueueJob(trx, { kind, ...job }));
  if (id === null) throw new Error('an equal job is pending');
  return id;
}

function equalJobs(count: number): BulkJob[] {
  return Array.from({ length: count }, (_, index) => ({ params: {}, runAfter: new Date(0), dedupeKey: String(index) }));
}

async function claimOne(): Promise<ClaimedJob> {
  const [job] = await claimJobs(db, [kind], 1, lease);
  if (!job) throw new Error('nothing was due');
  return job;
}

async function rowOf(id: string): Promise<Row> {
  const { rows } = await sql<Row>`select * from jobs.jobs where id = ${id}`.execute(db);
  if (!rows[0]) throw new Error('there is no such job');
  return rows[0];
}

async function eventsOf(id: string): Promise<string[]> {
  const { rows } = await sql<{ subject: string; attempt: number }>`
    select subject, (data->>'attempt')::int as attempt from jobs.outbox where data->>'id' = ${id} order by position`.execute(
    db,
  );
  return rows.map(({ subject, attempt }) => `${subject.split('.').at(-1)} ${attempt}`);
}

/** The worker that held the job is dead. */
async function killHolder(id: string): Promise<void> {
  await sql`update jobs.jobs set lease_until = now() - interval '1 second' where id = ${id}`.execute(db);
}

async function makeDue(id: string): Promise<void> {
  await sql`update jobs.jobs set run_after = now() - interval '1 second' where id = ${id}`.execute(db);
  await wakeWorkers(db);
}

function work(handler: JobHandler, options: { leaseMs?: number; concurrency?: number } = {}): Worker<unknown> {
  const worker = new Worker({
    db,
    handlers: { [kind]: handler },
    concurrency: 4,
    leaseMs: 60_000,
    wake,
    logger,
    ...options,
  });
  workers.add(worker);
  worker.start();
  return worker;
}

/** Ends only by being told to: it would wait for ever for a signal that was given before it began. */
const untilAborted: JobHandler = (_job, { signal }) =>
  new Promise((_resolve, reject) =>
    signal.addEventListener('abort', () => reject(new Error('stopped')), { once: true }),
  );

async function until(check: () => Promise<boolean> | boolean): Promise<void> {
  const limit = Date.now() + 20_000;
  while (!(await check())) {
    if (Date.now() > limit) throw new Error('it did not happen in time');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

describe('claiming', () => {
  test('by many at once gives every job to one of them, once', async () => {
    const params = equalJobs(200);
    await inTransaction(db, (trx) => enqueueJobs(trx, kind, params));
    const claimed: string[] = [];
    const claimAll = async (): Promise<void> => {
      for (;;) {
        const jobs = await claimJobs(db, [kind], 7, lease);
        claimed.push(...jobs.map(({ id }) => id));
        const { rows } = await sql`select from jobs.jobs where state = 'pending' limit 1`.execute(db);
        if (rows.length === 0) return;
      }
    };
    await Promise.all(Array.from({ length: 8 }, claimAll));
    expect(claimed).toHaveLength(200);
    expect(new Set(claimed).size).toBe(200);
  });

  test('takes kinds of its own only, what is due only, the oldest first, and no more than asked for', async () => {
    await enqueue({ kind: 'verify_blob' });
    await enqueue({ runAfter: new Date(Date.now() + 60_000) });
    const newer = await enqueue({ runAfter: new Date(Date.now() - 1_000) });
    const older = await enqueue({ runAfter: new Date(Date.now() - 2_000) });
    const newest = await enqueue();
    expect((await claimJobs(db, [kind, 'prune_history'], 2, lease)).map(({ id }) => id).sort()).toEqual(
      [newer, older].sort(),
    );
    expect((await claimJobs(db, [kind], 2, lease)).map(({ id }) => id)).toEqual([newest]);
  });

  test('takes over a lease that ran out before anything else, under a higher fence', async () => {
    const id = await enqueue();
    const first = await claimOne();
    await killHolder(id);
    await enqueue({ runAfter: new Date(0) });
    const second = await claimOne();
    expect(second).toMatchObject({ id, attempt: 2 });
    expect(BigInt(second.fence)).toBeGreaterThan(BigInt(first.fence));
  });

  test('fails a job whose worker died in every attempt', async () => {
    const id = await enqueue({ maxAttempts: 2 });
    for (const _ of [1, 2]) {
      await claimOne();
      await killHolder(id);
    }
    expect(await claimJobs(db, [kind], 1, lease)).toEqual([]);
    expect(await rowOf(id)).toMatchObject({
      state: 'failed',
      attempt: 2,
      error_code: 'worker_lost',
      lease_until: null,
    });
    expect(await eventsOf(id)).toEqual(['pending 0', 'running 1', 'running 2', 'failed 2']);
  });
});

describe('a worker that wakes up late', () => {
  test('changes nothing, writes no event, and is told so', async () => {
    const id = await enqueue();
    const late = await claimOne();
    await killHolder(id);
    const present = await claimOne();
    const before = await rowOf(id);
    expect(await renewLease(db, late, lease, { done: 9, total: 9, bytes: 9 })).toBe(false);
    expect(await settleJob(db, late, { state: 'succeeded', result: { late: true }, progress })).toBe(false);
    expect(await settleJob(db, late, { state: 'failed', code: 'x', detail: 'y' })).toBe(false);
    expect(await settleJob(db, late, { state: 'released' })).toBe(false);
    expect(await rowOf(id)).toEqual(before);
    expect(await eventsOf(id)).toEqual(['pending 0', 'running 1', 'running 2']);
    expect(await settleJob(db, present, { state: 'succeeded', result: {}, progress })).toBe(true);
    expect(await settleJob(db, present, { state: 'succeeded', result: {}, progress })).toBe(false);
  });

  test('is told to stop when its lease was taken over', async () => {
    const id = await enqueue();
    let stopped = false;
    work(
      async (_job, { signal }) => {
        await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
        stopped = true;
        return { late: true };
      },
      { leaseMs: 300 },
    );
    await until(async () => (await rowOf(id)).state === 'running');
    await sql`update jobs.jobs set fence = fence + 1, lease_until = now() + interval '1 hour' where id = ${id}`.execute(
      db,
    );
    await until(() => stopped);
    expect(await rowOf(id)).toMatchObject({ state: 'running', result: null });
  });
});

describe('an attempt', () => {
  test('that ends well keeps its result and progress, with an event for each change', async () => {
    const id = await enqueue({ params: { a: 1 } });
    work(async (job, run) => {
      run.progress({ done: 3 });
      return { seen: job.params };
    });
    await until(async () => (await rowOf(id)).state === 'succeeded');
    expect(await rowOf(id)).toMatchObject({
      result: { seen: { a: 1 } },
      progress_done: '3',
      attempt: 1,
      lease_until: null,
    });
    expect(await eventsOf(id)).toEqual(['pending 0', 'running 1', 'succeeded 1']);
  });

  test('that fails is tried again later, until the attempts are used up', async () => {
    const id = await enqueue({ maxAttempts: 2 });
    work(async () => {
      throw unavailable('The backend is away.');
    });
    await until(async () => (await rowOf(id)).error_code !== null);
    expect(await rowOf(id)).toMatchObject({
      attempt: 1,
      error_code: 'unavailable',
      error_detail: 'The backend is away.',
    });
    await until(async () => {
      await makeDue(id);
      return (await rowOf(id)).state === 'failed';
    });
    expect(await rowOf(id)).toMatchObject({ attempt: 2, error_code: 'unavailable' });
    expect(await eventsOf(id)).toEqual(['pending 0', 'running 1', 'pending 1', 'running 2', 'failed 2']);
  });

  test('that no retry can mend fails at once, and an unknown error tells nothing of its inside', async () => {
    const permanent = await enqueue({ params: { permanent: true } });
    const unknown = await enqueue({ maxAttempts: 1 });
    work(async (job) => {
      if (job.params['permanent']) throw new PermanentJobError('the parameter is missing');
      throw new Error('password=secret');
    });
    await until(async () => (await rowOf(permanent)).state === 'failed' && (await rowOf(unknown)).state === 'failed');
    expect(await rowOf(permanent)).toMatchObject({ attempt: 1, error_detail: 'the parameter is missing' });
    expect(await rowOf(unknown)).toMatchObject({
      error_code: 'internal',
      error_detail: expect.not.stringContaining('secret'),
    });
  });

  test('that is stopped gives its lease back at once, and does not count', async () => {
    const id = await enqueue();
    const worker = work(untilAborted);
    await until(async () => (await rowOf(id)).state === 'running');
    await worker.stop();
    expect(await rowOf(id)).toMatchObject({ state: 'pending', attempt: 0, lease_until: null });
    expect((await eventsOf(id)).join()).toMatch(/^pending 0(,running 1,pending 0){1,2}$/);
    work(async () => ({}));
    await until(async () => (await rowOf(id)).state === 'succeeded');
  });

  test('that was claimed as the worker stopped is given back unbegun', async () => {
    for (let round = 0; round < 20; round += 1) {
      const id = await enqueue();
      // It would wait for ever: the signal has been given already.
      const worker = work(untilAborted);
      await worker.stop();
      expect(await rowOf(id)).toMatchObject({ state: 'pending', attempt: 0, lease_until: null });
      await sql`delete from jobs.jobs`.execute(db);
    }
  });

  test('of a long job outlives its lease, for it is renewed', async () => {
    const id = await enqueue();
    const { promise, resolve } = Promise.withResolvers<void>();
    work(
      async (_job, run) => {
        run.progress({ done: 5 });
        await promise;
        return {};
      },
      { leaseMs: 200 },
    );
    await until(async () => (await rowOf(id)).progress_done === '5');
    const first = (await rowOf(id)).lease_until?.getTime() ?? 0;
    await until(async () => ((await rowOf(id)).lease_until?.getTime() ?? 0) > first + 200);
    resolve();
    await until(async () => (await rowOf(id)).state === 'succeeded');
    expect((await rowOf(id)).attempt).toBe(1);
  });

  test('never runs beside more others than allowed, and every job gets its turn', async () => {
    const jobs = equalJobs(60);
    let [running, most] = [0, 0];
    work(
      async () => {
        running += 1;
        most = Math.max(most, running);
        await new Promise((resolve) => setImmediate(resolve));
        running -= 1;
        return {};
      },
      { concurrency: 3 },
    );
    await inTransaction(db, (trx) => enqueueJobs(trx, kind, jobs));
    await until(
      async () => (await sql`select from jobs.jobs where state <> 'succeeded'`.execute(db)).rows.length === 0,
    );
    expect(most).toBeLessThanOrEqual(3);
  });
});

describe('queuing', () => {
  test('an equal job while one is pending makes none; once it runs, a new one may be made', async () => {
    const job = { kind, dedupeKey: 'k' } as const;
    const id = await enqueue(job);
    expect(await inTransaction(db, (trx) => enqueueJob(trx, job))).toBeNull();
    await inTransaction(db, (trx) => enqueueJobs(trx, kind, [{ params: {}, runAfter: new Date(0), dedupeKey: 'k' }]));
    const running = await claimOne();
    expect(running.id).toBe(id);
    const second = await enqueue(job);
    // Both may be pending now: the one that goes back gave up its key.
    expect(await settleJob(db, running, { state: 'pending', code: 'x', detail: 'y', delayMs: 0 })).toBe(true);
    expect((await claimJobs(db, [kind], 9, lease)).map((claimed) => claimed.id).sort()).toEqual([id, second].sort());
  });

  test('that is rolled back leaves neither job nor event', async () => {
    await expect(
      inTransaction(db, async (trx) => {
        await enqueueJob(trx, { kind });
        throw new Error('undo');
      }),
    ).rejects.toThrow('undo');
    const { rows } = await sql`select id from jobs.jobs union all select id from jobs.outbox`.execute(db);
    expect(rows).toEqual([]);
  });

  test('wakes a worker that waits', async () => {
    let ran = false;
    work(async () => {
      ran = true;
      return {};
    });
    const startedAt = performance.now();
    await enqueue();
    await until(() => ran);
    expect(performance.now() - startedAt).toBeLessThan(2_000);
  });

  test('by many replicas of one schedule makes one job, with its event', async () => {
    const schedules = Array.from({ length: 5 }, () => new Schedule(db, 'prune_history', 3_600_000, logger));
    for (const schedule of schedules) schedule.start();
    await until(async () => (await sql`select from jobs.outbox`.execute(db)).rows.length > 0);
    const { rows } = await sql<{ id: string; dedupe_key: string }>`select id, dedupe_key from jobs.jobs`.execute(db);
    for (const schedule of schedules) schedule.stop();
    expect(rows).toHaveLength(1);
    expect(await eventsOf(rows[0]?.id ?? '')).toEqual(['pending 0']);
  });
});
