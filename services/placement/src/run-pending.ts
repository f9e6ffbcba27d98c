import { sql } from 'kysely';
import type { Kysely } from 'kysely';
import { query } from '@stowage/common/database/transaction';
import { wakeWorkers } from '@stowage/common/jobs/enqueue';
import { jobKinds } from '@stowage/common/jobs/job';
import type { Tables } from './tables.ts';

export interface PendingRun {
  selected: number;
  succeeded: number;
  failed: number;
  running: number;
}

const pollMs = 100;
const limits = { default: 100, max: 1_000 };

interface Selected {
  id: string;
  attempt: number;
}

/**
 * Selects what is due, rings for the workers of all services (they claim as ever), and waits for the selected jobs up to
 * `waitSeconds`. A job whose attempt failed counts as failed, also where it will be tried again later.
 */
export async function runPending(
  db: Kysely<Tables>,
  wanted: { kinds: readonly string[]; limit: number; waitSeconds: number },
  signal: AbortSignal,
): Promise<PendingRun> {
  const selected = await selectDue(db, wanted.kinds, wanted.limit);
  if (selected.length > 0) await query(() => wakeWorkers(db));
  const deadline = Date.now() + wanted.waitSeconds * 1000;
  for (;;) {
    const run = await countOf(db, selected);
    if (run.running === 0 || Date.now() >= deadline || signal.aborted) return run;
    await new Promise((resolve) => setTimeout(resolve, pollMs));
  }
}

async function selectDue(db: Kysely<Tables>, kinds: readonly string[], limit: number): Promise<Selected[]> {
  const wanted = kinds.length === 0 ? Object.keys(jobKinds) : [...new Set(kinds)];
  const atMost = Math.min(limit > 0 ? limit : limits.default, limits.max);
  // Kind by kind: only so the index gives the oldest that are due, however many are not.
  const { rows } = await query(() =>
    sql<Selected>`
      select due.id, due.attempt from unnest(${wanted}::text[]) as wanted (kind) cross join lateral (
        select id, attempt, run_after from jobs.jobs
        where state = 'pending' and kind = wanted.kind and run_after <= now()
        order by run_after, id limit ${atMost}) due
      order by due.run_after, due.id limit ${atMost}`.execute(db),
  );
  return rows;
}

/** A job that history dropped meanwhile had succeeded. */
async function countOf(db: Kysely<Tables>, selected: readonly Selected[]): Promise<PendingRun> {
  const { rows } = await query(() =>
    sql<{ id: string; state: string; attempt: number }>`
      select id, state, attempt from jobs.jobs where id = any(${selected.map(({ id }) => id)}::uuid[])`.execute(db),
  );
  const now = new Map(rows.map((row) => [row.id, row]));
  const run: PendingRun = { selected: selected.length, succeeded: 0, failed: 0, running: 0 };
  for (const { id, attempt } of selected) {
    const job = now.get(id);
    if (!job || job.state === 'succeeded') run.succeeded += 1;
    else if (job.state === 'failed' || job.state === 'cancelled') run.failed += 1;
    else if (job.attempt > attempt + (job.state === 'running' ? 1 : 0)) run.failed += 1;
    else run.running += 1;
  }
  return run;
}
