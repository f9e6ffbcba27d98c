import { sql } from 'kysely';
import type { QueryExecutorProvider } from 'kysely';
import { newId } from '../ids.ts';
import type { JobKind, JsonObject } from './job.ts';
import { currentTraceparent, jobEventsInsert } from './outbox.ts';

export interface NewJob {
  kind: JobKind;
  params?: JsonObject;
  /** Not before this time. */
  runAfter?: Date;
  maxAttempts?: number;
  /** While a job of this kind with this key is pending, no second one is made. */
  dedupeKey?: string;
}

/** The channel that wakes workers. */
export const wakeChannel = 'stowage_jobs';

/** The time of the transaction, never after it: a column of milliseconds rounds, and what is woken now must be due now. */
export const dueNow = sql`date_trunc('milliseconds', now())`;

/** Queues a job within the caller's transaction. Gives its id, or null where an equal one is pending already. */
export async function enqueueJob(db: QueryExecutorProvider, job: NewJob): Promise<string | null> {
  const isDue = job.runAfter === undefined || job.runAfter.getTime() <= Date.now();
  const { rows } = await sql<{ id: string }>`
    with made as (
      insert into jobs.jobs (id, kind, params, run_after, max_attempts, dedupe_key, traceparent)
      values (${newId()}, ${job.kind}, ${JSON.stringify(job.params ?? {})}, ${job.runAfter ?? dueNow},
        ${job.maxAttempts ?? 5}, ${job.dedupeKey ?? null}, ${currentTraceparent()})
      on conflict (kind, dedupe_key) where dedupe_key is not null and state = 'pending' do nothing
      returning id, kind, state, attempt, traceparent
    ), event as (${jobEventsInsert(sql`made`)})
    select id, case when ${isDue}::boolean then pg_notify(${wakeChannel}, '')::text end as woken from made`.execute(db);
  return rows[0]?.id ?? null;
}

/** Tells all workers, once the transaction commits, that something is due. */
export async function wakeWorkers(db: QueryExecutorProvider): Promise<void> {
  await sql`select pg_notify(${wakeChannel}, '')`.execute(db);
}
