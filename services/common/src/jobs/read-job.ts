import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { sql } from 'kysely';
import type { QueryExecutorProvider } from 'kysely';
import type { JobSchema } from '@stowage/proto/stowage/placement/v1/job';
import { query } from '../database/transaction.ts';
import { AppError } from '../errors.ts';
import { isId } from '../ids.ts';
import type { JsonObject } from './job.ts';

/** A job as one service tells another of it. */
export type JobMessage = MessageInitShape<typeof JobSchema>;

/** A job as people may see it. */
export interface JobRow {
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

/** Of a JobRow. */
export const jobColumns = sql`id, kind, state, attempt, max_attempts, run_after, params, progress_done, progress_total, progress_bytes,
  result, error_code, error_detail, traceparent, created_at, started_at, finished_at`;

/** A job as it is now. Throws `not_found`. */
export async function readJob(db: QueryExecutorProvider, id: string): Promise<JobMessage> {
  if (!isId(id)) return noSuchJob();
  const { rows } = await query(() => sql<JobRow>`select ${jobColumns} from jobs.jobs where id = ${id}`.execute(db));
  return jobMessage(rows[0] ?? noSuchJob());
}

/** Throws `not_found`. */
export function noSuchJob(): never {
  throw new AppError('not_found', 'There is no job with this id.');
}

/** The message that tells of a job. */
export function jobMessage(row: JobRow): JobMessage {
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
