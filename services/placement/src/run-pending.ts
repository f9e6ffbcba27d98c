import { sql } from 'kysely';
import type { Kysely } from 'kysely';
import { query } from '@stowage/common/database/transaction';
import { wakeWorkers } from '@stowage/common/jobs/enqueue';
import type { Tables } from './tables.ts';

export interface PendingRun {
  selected: number;
  succeeded: number;
  failed: number;
  running: number;
}

const pollMs = 100;

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
  let run: PendingRun = { selected: selected.length, succeeded: 0, failed: 0, running: selected.length };
  while (run.running > 0 && Date.now() < deadline && !signal.aborted) {
    run = await countOf(db, selected);
    if (run.running > 0) await new Promise((resolve) => setTimeout(resolve, pollMs));
  }
  return run;
}

async function selectDue(db: Kysely<Tables>, kinds: readonly string[], limit: number): Promise<Selected[]> {
  const ofKinds = kinds.length === 0 ? sql`true` : sql`kind = any(${kinds})`;
  const { rows } = await query(() =>
    sql<Selected>`
      select id, attempt from jobs.jobs where state = 'pending' and run_after <= now() and ${ofKinds}
      order by id limit ${limit}`.execute(db),
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
    else if (job.state === 'pending' && job.attempt > attempt) run.failed += 1;
    else run.running += 1;
  }
  return run;
}
