import { sql } from 'kysely';
import type { Kysely } from 'kysely';
import { inTransaction } from '@stowage/common/database/transaction';
import { enqueueJob } from '@stowage/common/jobs/enqueue';
import { fullReconcileJob } from '@stowage/common/jobs/full-reconcile';
import type { BackendRow, Tables } from './tables.ts';

/** What is wrong with a backend. */
export interface Fault {
  /** The step that failed. */
  step: string;
  /** A sentence for an admin, without a path or a secret. */
  detail: string;
  /** One look is enough to be sure of it. */
  certain: boolean;
}

/** What a look at a backend showed. */
export interface Finding {
  /** Null for a backend that is right. */
  fault: Fault | null;
  /** Of a backend that is right all the same. */
  warning: string | null;
  latencyMs: number;
}

/** How much a look weighs: whether it decides alone or is one of a series. */
export type Weight = 'decides' | 'series';

/** Failures in a row that make a backend unhealthy, and successes that make it healthy. */
const failuresNeeded = 3;
const successesNeeded = 2;

/** How old a note may get before the same finding is written again. */
const refreshMs = 5 * 60_000;

/** Notes what a check of the backend as `row` says showed. False, and nothing is noted, where it was moved or has other secrets by now. */
export async function noteHealth(
  db: Kysely<Tables>,
  row: BackendRow,
  finding: Finding,
  weight: Weight,
): Promise<boolean> {
  const { fault, warning, latencyMs } = finding;
  const failures = fault ? sql<number>`health_failures + 1` : sql<number>`0`;
  const successes = fault ? sql<number>`0` : sql<number>`health_successes + 1`;
  const status = fault ? 'unhealthy' : 'healthy';
  const decided =
    weight === 'decides' || fault?.certain
      ? sql`true`
      : fault
        ? sql`health_failures + 1 >= ${failuresNeeded}`
        : sql`(health_successes + 1 >= ${successesNeeded} or health_status = 'unknown')`;
  const values = {
    health_status: sql<BackendRow['health_status']>`case when ${decided} then ${status} else health_status end`,
    health_failures: failures,
    health_successes: successes,
    health_step: fault?.step ?? null,
    health_detail: fault ? `${fault.step}: ${fault.detail}` : warning,
    health_latency_ms: latencyMs,
    health_checked_at: sql<Date>`now()`,
  };
  return inTransaction(db, async (trx) => {
    const mine = trx.selectFrom('registry.backends').selectAll().where('id', '=', row.id);
    const before = await mine.forUpdate().executeTakeFirst();
    if (before && placeOf(before) !== placeOf(row)) return false;
    await trx.updateTable('registry.backends').set(values).where('id', '=', row.id).execute();
    const after = await mine.executeTakeFirst();
    // What could not be copied to it, or was copied elsewhere for its sake, is seen to at once.
    if (before?.health_status === 'unhealthy' && after?.health_status === 'healthy') {
      await enqueueJob(trx, fullReconcileJob({ reason: 'backend_healthy', backend_id: row.id }, row.id));
    }
    return true;
  });
}

/** All that a store is opened from: another one is opened when this changes. */
export function placeOf(row: BackendRow): string {
  return JSON.stringify([row.type, row.config, row.secrets_version]);
}

/**
 * Notes what was seen of a backend's marker while it was used. It tells of the marker only: a fault that is not certain,
 * and that the marker is right while something else is wrong, change nothing.
 */
export async function noteGlimpse(db: Kysely<Tables>, row: BackendRow, finding: Finding): Promise<void> {
  if (row.health_status === 'unknown' || !row.marked) {
    await noteHealth(db, row, finding, 'decides');
    return;
  }
  const { fault } = finding;
  if (fault) {
    const fresh = row.health_checked_at !== null && Date.now() - row.health_checked_at.getTime() < refreshMs;
    const known = row.health_status === 'unhealthy' && row.health_detail === `${fault.step}: ${fault.detail}`;
    if (fault.certain && !(known && fresh)) await noteHealth(db, row, finding, 'series');
  } else if (row.health_status === 'unhealthy' && (row.health_step === 'marker' || row.health_step === null)) {
    await noteHealth(db, row, finding, 'series');
  }
}
