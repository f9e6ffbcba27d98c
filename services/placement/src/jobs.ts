import { sql } from 'kysely';
import type { Kysely, Transaction } from 'kysely';
import { decodeCursor, encodeCursor } from '@stowage/common/cursor';
import { query } from '@stowage/common/database/transaction';
import { AppError, validationError } from '@stowage/common/errors';
import { isId } from '@stowage/common/ids';
import { dueNow, wakeWorkers } from '@stowage/common/jobs/enqueue';
import { jobColumns, jobMessage, noSuchJob } from '@stowage/common/jobs/read-job';
import type { JobMessage, JobRow } from '@stowage/common/jobs/read-job';
import { jobEventsInsert } from '@stowage/common/jobs/outbox';
import type { Tables } from './tables.ts';

/** One page of the jobs, newest first; empty filters let all pass. */
export async function listJobs(
  db: Kysely<Tables>,
  wanted: { state: string; kind: string; limit: number; cursor: string },
): Promise<{ items: JobMessage[]; nextCursor?: string }> {
  const after = decodeCursor(wanted.cursor, 1)?.[0];
  if (after !== undefined && !isId(after))
    throw validationError([{ pointer: '?cursor', detail: 'is not a cursor that this list gave' }]);
  const conditions = [sql`true`];
  if (wanted.state !== '') conditions.push(sql`state = ${wanted.state}`);
  if (wanted.kind !== '') conditions.push(sql`kind = ${wanted.kind}`);
  if (after !== undefined) conditions.push(sql`id < ${after}::uuid`);
  const { rows } = await query(() =>
    sql<JobRow>`select ${jobColumns} from jobs.jobs where ${sql.join(conditions, sql` and `)}
      order by id desc limit ${wanted.limit + 1}`.execute(db),
  );
  const items = rows.slice(0, wanted.limit);
  const last = items.at(-1);
  return {
    items: items.map(jobMessage),
    ...(rows.length > wanted.limit && last ? { nextCursor: encodeCursor([last.id]) } : {}),
  };
}

/** Gives a failed job all its attempts again. Throws `not_found`, and `state_conflict` for a job that did not fail. */
export async function retryJob(trx: Transaction<Tables>, id: string): Promise<JobMessage> {
  if (!isId(id)) return noSuchJob();
  const { rows } = await sql<JobRow>`
    with retried as (
      update jobs.jobs set state = 'pending', attempt = 0, run_after = ${dueNow}, finished_at = null, fence = fence + 1,
        dedupe_key = null
      where id = ${id} and state = 'failed' returning ${jobColumns}
    ), event as (${jobEventsInsert(sql`retried`)})
    select * from retried`.execute(trx);
  const row = rows[0];
  if (!row) {
    const { rows: present } = await sql<{ state: string }>`select state from jobs.jobs where id = ${id}`.execute(trx);
    throw new AppError(
      'state_conflict',
      `Only a failed job can be retried; this one is ${(present[0] ?? noSuchJob()).state}.`,
    );
  }
  await wakeWorkers(trx);
  return jobMessage(row);
}
