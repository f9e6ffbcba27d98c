import type { Kysely } from 'kysely';
import { query } from '@stowage/common/database/transaction';
import type { BackendRow, Tables } from './tables.ts';

/** What a look at a backend showed: nothing wrong, or what. */
export interface Finding {
  /** A sentence for an admin, without a path; null for a backend that is right. */
  fault: string | null;
  latencyMs: number;
}

/** How old a note may get before the same finding is written again. */
const refreshMs = 5 * 60_000;

/**
 * Notes what was found in the row of a backend, where that is news. `health_checked_at` stays null until the backend
 * was right for the first time: that is how an unfinished set-up is told from a disk that went away.
 */
export async function noteHealth(db: Kysely<Tables>, row: BackendRow, finding: Finding): Promise<void> {
  const status = finding.fault === null ? 'healthy' : 'unhealthy';
  const now = new Date();
  const fresh = row.health_checked_at !== null && now.getTime() - row.health_checked_at.getTime() < refreshMs;
  const known = row.health_status === status && row.health_detail === finding.fault;
  if (known && (fresh || (status === 'unhealthy' && row.health_checked_at === null))) return;
  const values = {
    health_status: status,
    health_detail: finding.fault,
    health_latency_ms: finding.latencyMs,
    ...(status === 'healthy' || row.health_checked_at !== null ? { health_checked_at: now } : {}),
  } as const;
  await query(() => db.updateTable('registry.backends').set(values).where('id', '=', row.id).execute());
}
