import { sql } from 'kysely';
import type { Kysely } from 'kysely';
import { violatedConstraint } from '../database/database-error.ts';
import { query } from '../database/transaction.ts';
import { dueNow, wakeChannel } from './enqueue.ts';
import type { ClaimedJob, JsonObject, Progress } from './job.ts';
import { jobEventsInsert } from './outbox.ts';

interface ClaimedRow {
  id: string;
  kind: string;
  params: JsonObject;
  attempt: number;
  max_attempts: number;
  fence: string;
  traceparent: string | null;
}

/** Who claims, and for how long at a time. */
export interface Lease {
  holder: string;
  leaseMs: number;
}

/** Jobs of dead workers that one claim fails at most; the next one goes on. */
const exhaustedAtOnce = 100;

/**
 * Claims up to `limit` due jobs of the given kinds, those whose lease ran out first, in one statement that writes the
 * events too. The attempt is counted here. A job that used up its attempts in crashes is failed instead. Pending jobs are
 * looked up kind by kind: only so the index gives the oldest without sorting all that is due.
 */
export async function claimJobs<T>(
  db: Kysely<T>,
  kinds: readonly string[],
  limit: number,
  lease: Lease,
): Promise<ClaimedJob[]> {
  const { rows } = await query(() =>
    sql<ClaimedRow>`
      with exhausted as (
        select id from jobs.jobs where state = 'running' and kind = any(${kinds}) and lease_until < now()
          and attempt >= max_attempts order by lease_until limit ${exhaustedAtOnce} for update skip locked
      ), failed as (
        update jobs.jobs set state = 'failed', finished_at = now(), lease_until = null, lease_holder = null,
          fence = fence + 1, error_code = 'worker_lost', error_detail = 'Its worker died in every attempt.'
        from exhausted where jobs.jobs.id = exhausted.id
        returning jobs.jobs.id, kind, state, attempt, traceparent
      ), lost as (
        select id, lease_until from jobs.jobs
        where state = 'running' and kind = any(${kinds}) and lease_until < now() and attempt < max_attempts
        order by lease_until limit ${limit} for update skip locked
      ), pending as (
        select due.id, due.run_after from unnest(${kinds}::text[]) as wanted (kind) cross join lateral (
          select id, run_after from jobs.jobs
          where state = 'pending' and kind = wanted.kind and run_after <= now()
          order by run_after, id limit ${limit} for update skip locked) due
      ), due as (
        select id from (
          select id, 0 as rank, lease_until as since from lost union all select id, 1, run_after from pending) candidates
        order by rank, since, id limit ${limit}
      ), claimed as (
        update jobs.jobs set state = 'running', attempt = attempt + 1, fence = fence + 1, lease_holder = ${lease.holder},
          lease_until = now() + ${lease.leaseMs} * interval '1 ms', started_at = now()
        from due where jobs.jobs.id = due.id
        returning jobs.jobs.id, kind, params, state, attempt, max_attempts, fence, traceparent
      ), event as (${jobEventsInsert(sql`(
        select id, kind, state, attempt, traceparent from failed
        union all select id, kind, state, attempt, traceparent from claimed) changed`)})
      select id, kind, params, attempt, max_attempts, fence, traceparent from claimed`.execute(db),
  );
  return rows.map(({ max_attempts: maxAttempts, ...row }) => ({ ...row, maxAttempts }));
}

/** Renews the lease and notes progress. False: the lease is lost, and the worker must stop. */
export async function renewLease<T>(
  db: Kysely<T>,
  job: ClaimedJob,
  lease: Lease,
  progress: Progress,
): Promise<boolean> {
  const { numAffectedRows } = await query(() =>
    sql`
      update jobs.jobs set lease_until = now() + ${lease.leaseMs} * interval '1 ms', progress_done = ${progress.done},
        progress_total = ${progress.total}, progress_bytes = ${progress.bytes}
      where id = ${job.id} and fence = ${job.fence} and state = 'running'`.execute(db),
  );
  return numAffectedRows === 1n;
}

/** How an attempt ended. */
export type Outcome =
  | { state: 'succeeded'; result: JsonObject; progress: Progress }
  | { state: 'failed'; code: string; detail: string }
  | { state: 'pending'; code: string; detail: string; delayMs: number }
  | { state: 'released'; delayMs?: number };

/**
 * Writes how an attempt ended. False: another worker has the job by now, and nothing was changed. One that goes back stays
 * the only one of its dedupe key, unless another was queued while it ran.
 */
export async function settleJob<T>(db: Kysely<T>, job: ClaimedJob, outcome: Outcome): Promise<boolean> {
  try {
    return await settle(db, job, outcome, keptKey);
  } catch (error) {
    // Queued in the very moment between the look for another and this one's going back.
    if (violatedConstraint(error) === null) throw error;
    return settle(db, job, outcome, sql`null`);
  }
}

const keptKey = sql`case when not exists (
  select from jobs.jobs other where other.kind = jobs.jobs.kind and other.dedupe_key = jobs.jobs.dedupe_key
    and other.dedupe_key is not null and other.state = 'pending') then dedupe_key end`;

async function settle<T>(db: Kysely<T>, job: ClaimedJob, outcome: Outcome, key: Fragment): Promise<boolean> {
  const wakes = outcome.state === 'released' && !outcome.delayMs;
  const { rows } = await query(() =>
    sql`
      with settled as (
        update jobs.jobs set lease_until = null, lease_holder = null, fence = fence + 1, ${settlement(outcome, key)}
        where id = ${job.id} and fence = ${job.fence} and state = 'running'
        returning id, kind, state, attempt, traceparent
      ), event as (${jobEventsInsert(sql`settled`)})
      select case when ${wakes}::boolean then pg_notify(${wakeChannel}, '')::text end as woken from settled`.execute(
      db,
    ),
  );
  return rows.length === 1;
}

type Fragment = ReturnType<typeof sql>;

function settlement(outcome: Outcome, key: Fragment): Fragment {
  switch (outcome.state) {
    case 'succeeded':
      return sql`state = 'succeeded', finished_at = now(), error_code = null, error_detail = null,
        result = ${JSON.stringify(outcome.result)}, progress_done = ${outcome.progress.done},
        progress_total = ${outcome.progress.total}, progress_bytes = ${outcome.progress.bytes}`;
    case 'failed':
      return sql`state = 'failed', finished_at = now(), error_code = ${outcome.code}, error_detail = ${outcome.detail}`;
    case 'pending':
      return sql`state = 'pending', dedupe_key = ${key}, run_after = now() + ${outcome.delayMs} * interval '1 ms',
        error_code = ${outcome.code}, error_detail = ${outcome.detail}`;
    case 'released':
      return sql`state = 'pending', dedupe_key = ${key}, attempt = attempt - 1,
        run_after = ${dueNow} + ${outcome.delayMs ?? 0} * interval '1 ms'`;
  }
}
