import { query } from '@stowage/common/database/transaction';
import { jobKinds } from '@stowage/common/jobs/job';
import type { Logger } from '@stowage/common/runtime/logger';
import { gauge, observeLooks } from '@stowage/common/runtime/metrics';
import type { Observation } from '@stowage/common/runtime/metrics';
import { sql } from 'kysely';
import type { Kysely } from 'kysely';
import type { Tables } from './tables.ts';

/** To count all that waits would cost more the more there is. */
const countedMost = 10_000;
const timing = { everyMs: 15_000, staleMs: 120_000 };

interface KindRow {
  kind: string;
  pending: number;
  running: number;
  failed: number;
  /** How long the first that is due has been due, in seconds; 0 where none is. */
  oldest: number;
}

/** Tells of jobs by kind: how many are in each state that is not over for good, and how long the oldest waits. Gives what ends that. */
export function observeJobs(db: Kysely<Tables>, logger: Logger): () => void {
  const jobs = gauge('stowage_jobs', `Jobs by kind and state, up to ${countedMost} each.`);
  const oldest = gauge('stowage_jobs_oldest_due_seconds', 'How long the oldest job that is due waits for a worker.');
  return observeLooks([jobs, oldest], { ...timing, logger }, async () => {
    const rows = await readKinds(db);
    return rows.flatMap(({ kind, oldest: seconds, ...counts }): Observation[] => [
      ...Object.entries(counts).map(([state, count]): Observation => [jobs, count, { kind, state }]),
      [oldest, Math.max(0, seconds), { kind }],
    ]);
  });
}

async function readKinds(db: Kysely<Tables>): Promise<KindRow[]> {
  const count = (state: string) => sql`(
    select count(*)::int from (
      select from jobs.jobs where state = ${sql.lit(state)} and kind = known.kind limit ${countedMost}) counted)`;
  const { rows } = await query(() =>
    sql<KindRow>`
      select kind, ${count('pending')} as pending, ${count('running')} as running, ${count('failed')} as failed,
        coalesce((
          select extract(epoch from now() - run_after)::float8 from jobs.jobs
          where state = 'pending' and kind = known.kind and run_after <= now() order by run_after limit 1), 0) as oldest
      from unnest(${Object.keys(jobKinds)}::text[]) as known (kind)`.execute(db),
  );
  return rows;
}
