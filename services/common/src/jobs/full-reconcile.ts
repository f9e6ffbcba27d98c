import type { QueryExecutorProvider } from 'kysely';
import { enqueueJob } from './enqueue.ts';
import type { NewJob } from './enqueue.ts';
import type { JsonObject } from './job.ts';
import { readJob } from './read-job.ts';
import type { JobMessage } from './read-job.ts';

/** A long run outlives many crashes of its worker; it goes on where it was each time. */
const attempts = 1_000;

/** A job that brings all content to where its policies say. With a `dedupeKey` it is taken for an equal one that is pending. */
export function fullReconcileJob(params: JsonObject, dedupeKey?: string): NewJob {
  return { kind: 'full_reconcile', params, maxAttempts: attempts, ...(dedupeKey === undefined ? {} : { dedupeKey }) };
}

/** Queues a full reconcile that is never taken for another, within the caller's transaction. Gives it as it is then. */
export async function queueFullReconcile(db: QueryExecutorProvider, params: JsonObject): Promise<JobMessage> {
  const id = await enqueueJob(db, fullReconcileJob(params));
  if (id === null) throw new Error('a job without a dedupe key was taken for another');
  return readJob(db, id);
}
