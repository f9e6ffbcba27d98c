import { propagation, context as otelContext } from '@opentelemetry/api';
import { sql } from 'kysely';
import type { QueryExecutorProvider } from 'kysely';
import { newId } from '../ids.ts';
import type { JobKind, JsonObject } from './job.ts';
import { writeOutbox } from './outbox.ts';

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
  const id = newId();
  const { rows } = await sql<{ id: string }>`
    insert into jobs.jobs (id, kind, params, run_after, max_attempts, dedupe_key, traceparent)
    values (${id}, ${job.kind}, ${JSON.stringify(job.params ?? {})}, ${job.runAfter ?? dueNow},
      ${job.maxAttempts ?? 5}, ${job.dedupeKey ?? null}, ${currentTraceparent()})
    on conflict (kind, dedupe_key) where dedupe_key is not null and state = 'pending' do nothing
    returning id`.execute(db);
  if (rows.length === 0) return null;
  await writeOutbox(db, `stowage.jobs.${job.kind}.pending`, { id, kind: job.kind, state: 'pending', attempt: 0 });
  if (job.runAfter === undefined || job.runAfter.getTime() <= Date.now()) await wakeWorkers(db);
  return id;
}

/** Tells all workers, once the transaction commits, that something is due. */
export async function wakeWorkers(db: QueryExecutorProvider): Promise<void> {
  await sql`select pg_notify(${wakeChannel}, '')`.execute(db);
}

/** The W3C traceparent of what is running now, or null. */
export function currentTraceparent(): string | null {
  const carrier: Record<string, string> = {};
  propagation.inject(otelContext.active(), carrier);
  return carrier['traceparent'] ?? null;
}
