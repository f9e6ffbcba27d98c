import { sql } from 'kysely';
import type { QueryExecutorProvider } from 'kysely';
import { newId } from '../ids.ts';
import { wakeChannel } from './enqueue.ts';
import type { JobKind, JsonObject } from './job.ts';
import { currentTraceparent, jobEventsInsert } from './outbox.ts';

/** As writeOutbox, for many events of one subject in one statement. */
export async function writeOutboxRows(
  db: QueryExecutorProvider,
  subject: string,
  rows: readonly JsonObject[],
): Promise<void> {
  if (rows.length === 0) return;
  const data = rows.map((row) => JSON.stringify(row));
  await sql`
    insert into jobs.outbox (subject, data, traceparent)
    select ${subject}::text, data, ${currentTraceparent()}::text
    from unnest(${data}::jsonb[]) with ordinality as event (data, place) order by place`.execute(db);
}

/** One of many jobs of one kind. */
export interface BulkJob {
  params: JsonObject;
  runAfter: Date;
  dedupeKey: string;
}

/** As enqueueJob, for many jobs of one kind in one statement; those that are pending already are left out. */
export async function enqueueJobs(
  db: QueryExecutorProvider,
  kind: JobKind,
  jobs: readonly BulkJob[],
  maxAttempts = 5,
): Promise<void> {
  if (jobs.length === 0) return;
  const ids = jobs.map(() => newId());
  const params = jobs.map((job) => JSON.stringify(job.params));
  const runAfter = jobs.map((job) => job.runAfter);
  const keys = jobs.map((job) => job.dedupeKey);
  const isDue = jobs.some((job) => job.runAfter.getTime() <= Date.now());
  await sql`
    with made as (
      insert into jobs.jobs (id, kind, params, run_after, max_attempts, dedupe_key, traceparent)
      select id, ${kind}::text, params, run_after, ${maxAttempts}::int, dedupe_key, ${currentTraceparent()}::text
      from unnest(${ids}::uuid[], ${params}::jsonb[], ${runAfter}::timestamptz[], ${keys}::text[])
        as job (id, params, run_after, dedupe_key)
      on conflict (kind, dedupe_key) where dedupe_key is not null and state = 'pending' do nothing
      returning id, kind, state, attempt, traceparent
    ), event as (${jobEventsInsert(sql`made`)})
    select pg_notify(${wakeChannel}, '') where ${isDue}::boolean and exists (select from made)`.execute(db);
}
