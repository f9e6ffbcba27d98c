import { sql } from 'kysely';
import type { QueryExecutorProvider } from 'kysely';
import { newId } from '../ids.ts';
import { currentTraceparent, wakeWorkers } from './enqueue.ts';
import type { JobKind, JsonObject } from './job.ts';

/** As writeOutbox, for many events of one subject in one statement. */
export async function writeOutboxRows(
  db: QueryExecutorProvider,
  subject: string,
  rows: readonly JsonObject[],
): Promise<void> {
  if (rows.length === 0) return;
  const ids = rows.map(() => newId());
  const data = rows.map((row) => JSON.stringify(row));
  await sql`
    insert into jobs.outbox (id, subject, data, traceparent)
    select id, ${subject}, data, ${currentTraceparent()}
    from unnest(${ids}::uuid[], ${data}::jsonb[]) as event (id, data)`.execute(db);
}

/** One of many jobs of one kind. */
export interface BulkJob {
  params: JsonObject;
  runAfter: Date;
  dedupeKey: string;
}

/** As enqueueJob, for many jobs of one kind in one statement; those that are pending already are left out. */
export async function enqueueJobs(db: QueryExecutorProvider, kind: JobKind, jobs: readonly BulkJob[]): Promise<void> {
  if (jobs.length === 0) return;
  const ids = jobs.map(() => newId());
  const params = jobs.map((job) => JSON.stringify(job.params));
  const runAfter = jobs.map((job) => job.runAfter);
  const keys = jobs.map((job) => job.dedupeKey);
  const { rows } = await sql<{ id: string }>`
    insert into jobs.jobs (id, kind, params, run_after, dedupe_key, traceparent)
    select id, ${kind}, params, run_after, dedupe_key, ${currentTraceparent()}
    from unnest(${ids}::uuid[], ${params}::jsonb[], ${runAfter}::timestamptz[], ${keys}::text[])
      as job (id, params, run_after, dedupe_key)
    on conflict (kind, dedupe_key) where dedupe_key is not null and state = 'pending' do nothing
    returning id`.execute(db);
  const events = rows.map(({ id }) => ({ id, kind, state: 'pending', attempt: 0 }));
  await writeOutboxRows(db, `stowage.jobs.${kind}.pending`, events);
  if (jobs.some((job) => job.runAfter.getTime() <= Date.now())) await wakeWorkers(db);
}
