import { sql } from 'kysely';
import type { Transaction } from 'kysely';
import { unavailable } from '@stowage/common/errors';
import { enqueueJob } from '@stowage/common/jobs/enqueue';
import type { NewJob } from '@stowage/common/jobs/enqueue';
import { fullReconcileJob } from '@stowage/common/jobs/full-reconcile';
import { readJob } from '@stowage/common/jobs/read-job';
import type { JobMessage } from '@stowage/common/jobs/read-job';
import { loadBackends } from './backend-standing.ts';
import type { Tables } from './tables.ts';

type Trx = Transaction<Tables>;

const tries = 3;

/** Queues a full reconcile on somebody's wish. Gives an equal one that is pending already where there is one. */
export async function enqueueFullReconcile(
  trx: Trx,
  { removeUnknown }: { removeUnknown: boolean },
): Promise<JobMessage> {
  const reason = 'on_demand';
  if (!removeUnknown) return enqueueOrFind(trx, { ...fullReconcileJob({ reason }), dedupeKey: reason });
  const job = fullReconcileJob({ reason, remove_unknown: true });
  return enqueueOrFind(trx, { ...job, dedupeKey: `${reason}_remove_unknown` });
}

/** Queues a check of each enabled backend on somebody's wish. Gives those that are pending already as they are. */
export async function enqueueHealthChecks(trx: Trx): Promise<JobMessage[]> {
  const jobs: JobMessage[] = [];
  for (const { id, enabled } of (await loadBackends(trx)).values()) {
    if (enabled) jobs.push(await enqueueOrFind(trx, healthCheckOf(id, id)));
  }
  return jobs;
}

/** The full reconcile that comes without anybody's wish, for a schedule. */
export async function scheduledReconcile(): Promise<(NewJob & { dedupeKey: string })[]> {
  const dedupeKey = 'schedule';
  return [{ ...fullReconcileJob({ reason: dedupeKey }), dedupeKey }];
}

/** A check of one backend. */
export function healthCheckOf(backendId: string, dedupeKey: string): NewJob & { dedupeKey: string } {
  return { kind: 'health_check', params: { backend_id: backendId }, dedupeKey };
}

async function enqueueOrFind(trx: Trx, job: NewJob & { dedupeKey: string }): Promise<JobMessage> {
  for (let attempt = 0; attempt < tries; attempt += 1) {
    const id = (await enqueueJob(trx, job)) ?? (await pendingJob(trx, job));
    // One that was claimed between the two statements is not pending any more: then there is room for another.
    if (id !== null) return readJob(trx, id);
  }
  throw unavailable('Such jobs come and go too fast just now: try again.', undefined, 1);
}

async function pendingJob(trx: Trx, { kind, dedupeKey }: NewJob): Promise<string | null> {
  const { rows } = await sql<{ id: string }>`
    select id from jobs.jobs where kind = ${kind} and dedupe_key = ${dedupeKey} and state = 'pending'`.execute(trx);
  return rows[0]?.id ?? null;
}
