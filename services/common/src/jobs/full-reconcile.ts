import type { NewJob } from './enqueue.ts';
import type { JsonObject } from './job.ts';

/** A long run outlives many crashes of its worker; it goes on where it was each time. */
const attempts = 1_000;

/** A job that brings all content to where its policies say. With a `dedupeKey` it is taken for an equal one that is pending. */
export function fullReconcileJob(params: JsonObject, dedupeKey?: string): NewJob {
  return { kind: 'full_reconcile', params, maxAttempts: attempts, ...(dedupeKey === undefined ? {} : { dedupeKey }) };
}
