import { sql } from 'kysely';
import type { Kysely, Transaction } from 'kysely';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { decodeCursor, encodeCursor } from '@stowage/common/cursor';
import { query } from '@stowage/common/database/transaction';
import { AppError, validationError } from '@stowage/common/errors';
import { isId } from '@stowage/common/ids';
import { dueNow, wakeWorkers } from '@stowage/common/jobs/enqueue';
import type { JsonObject } from '@stowage/common/jobs/job';
import { jobEventsInsert } from '@stowage/common/jobs/outbox';
import type { JobSchema } from '@stowage/proto/stowage/placement/v1/job';
import type { Tables } from './tables.ts';

type JobMessage = MessageInitShape<typeof JobSchema>;

interface JobRow {
  id: string;
  kind: string;
  state: string;
  attempt: number;
  max_attempts: number;
  run_after: Date;
  params: JsonObject;
  progress_done: string;
  progress_total: string | null;
  progress_bytes: string;
  result: JsonObject | null;
  error_code: string | null;
  error_detail: string | null;
  traceparent: string | null;
  created_at: Date;
  started_at: Date | null;
  finished_at: Date | null;
}

const columns = sql`id, kind, state, attempt, max_attempts, run_after, params, progress_done, progress_total, progress_bytes,
  result, error_code, error_detail, traceparent, created_at, started_at, finished_at`;

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
    sql<JobRow>`select ${columns} from jobs.jobs where ${sql.join(conditions, sql` and `)}
      order by id desc limit ${wanted.limit + 1}`.execute(db),
  );
  const items = rows.slice(0, wanted.limit);
  const last = items.at(-1);
  return {
    items: items.map(toMessage),
    ...(rows.length > wanted.limit && last ? { nextCursor: encodeCursor([last.id]) } : {}),
  };
}

/** Throws `not_found`. */
export async function getJob(db: Kysely<Tables>, id: string): Promise<JobMessage> {
  if (!isId(id)) return missing();
  const { rows } = await query(() => sql<JobRow>`select ${columns} from jobs.jobs where id = ${id}`.execute(db));
  return toMessage(rows[0] ?? missing());
}

/** Gives a failed job all its attempts again. Throws `not_found`, and `state_conflict` for a job that did not fail. */
export async function retryJob(trx: Transaction<Tables>, id: string): Promise<JobMessage> {
  if (!isId(id)) return missing();
  const { rows } = await sql<JobRow>`
    with retried as (
      update jobs.jobs set state = 'pending', attempt = 0, run_after = ${dueNow}, finished_at = null, fence = fence + 1,
        dedupe_key = null
      where id = ${id} and state = 'failed' returning ${columns}
    ), event as (${jobEventsInsert(sql`retried`)})
    select * from retried`.execute(trx);
  const row = rows[0];
  if (!row) {
    const { rows: present } = await sql<{ state: string }>`select state from jobs.jobs where id = ${id}`.execute(trx);
    throw new AppError(
      'state_conflict',
      `Only a failed job can be retried; this one is ${(present[0] ?? missing()).state}.`,
    );
  }
  await wakeWorkers(trx);
  return toMessage(row);
}

function missing(): never {
  throw new AppError('not_found', 'There is no job with this id.');
}

function toMessage(row: JobRow): JobMessage {
  return {
    id: row.id,
    kind: row.kind,
    state: row.state,
    attempt: row.attempt,
    maxAttempts: row.max_attempts,
    runAfter: timestampFromDate(row.run_after),
    params: row.params,
    progress: {
      done: BigInt(row.progress_done),
      ...(row.progress_total === null ? {} : { total: BigInt(row.progress_total) }),
      bytes: BigInt(row.progress_bytes),
    },
    ...(row.result === null ? {} : { result: row.result }),
    ...(row.error_code === null ? {} : { error: { code: row.error_code, detail: row.error_detail ?? '' } }),
    ...(row.traceparent === null ? {} : { traceId: row.traceparent.split('-')[1] ?? '' }),
    createdAt: timestampFromDate(row.created_at),
    ...(row.started_at === null ? {} : { startedAt: timestampFromDate(row.started_at) }),
    ...(row.finished_at === null ? {} : { finishedAt: timestampFromDate(row.finished_at) }),
  };
}
