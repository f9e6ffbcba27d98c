import type { Kysely } from 'kysely';
import { inTransaction } from '@stowage/common/database/transaction';
import { enqueueJob } from '@stowage/common/jobs/enqueue';
import { fullReconcileJob } from '@stowage/common/jobs/full-reconcile';
import type { ClaimedJob } from '@stowage/common/jobs/job';
import type { Tables } from '../tables.ts';

const followUp = { firstMs: 60_000, maxMs: 15 * 60_000 };

/** How many follow-ups led to this run; none for one that was asked for otherwise. */
export function followUpsOf(job: ClaimedJob): number {
  return typeof job.params['follow_up'] === 'number' ? job.params['follow_up'] : 0;
}

/** What failed may pass: it is tried again, later each time that it did not. */
export async function queueFollowUp(db: Kysely<Tables>, tries: number): Promise<void> {
  const delayMs = Math.min(followUp.firstMs * 2 ** tries, followUp.maxMs);
  const again = fullReconcileJob({ reason: 'follow_up', follow_up: tries + 1 }, 'follow_up');
  await inTransaction(db, (trx) => enqueueJob(trx, { ...again, runAfter: new Date(Date.now() + delayMs) }));
}
