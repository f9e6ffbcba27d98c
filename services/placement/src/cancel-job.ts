import { sql } from 'kysely';
import type { Transaction } from 'kysely';
import { AppError } from '@stowage/common/errors';
import { isId } from '@stowage/common/ids';
import { jobEventsInsert } from '@stowage/common/jobs/outbox';
import { readJob } from '@stowage/common/jobs/read-job';
import type { JobMessage } from '@stowage/common/jobs/read-job';
import type { Tables } from './tables.ts';

/**
 * Cancels a job that has not ended. The worker of one that runs loses its lease, and stops when it renews it next; what
 * it does until then is what a job may do twice. Throws `not_found`, `state_conflict`.
 */
export async function cancelJob(trx: Transaction<Tables>, id: string): Promise<JobMessage> {
  const { rows } = await sql`
    with cancelled as (
      update jobs.jobs set state = 'cancelled', finished_at = now(), lease_until = null, lease_holder = null,
        fence = fence + 1, dedupe_key = null
      where id = ${isId(id) ? id : null} and state in ('pending', 'running')
      returning id, kind, state, attempt, traceparent
    ), event as (${jobEventsInsert(sql`cancelled`)})
    select id from cancelled`.execute(trx);
  const job = await readJob(trx, id);
  if (rows.length === 0) throw new AppError('state_conflict', `The job has ended already: it is ${job.state}.`);
  return job;
}
