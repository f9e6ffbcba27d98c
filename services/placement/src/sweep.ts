import type { NewJob } from '@stowage/common/jobs/enqueue';
import type { JobHandler } from '@stowage/common/jobs/job';
import type { Client } from '@stowage/common/rpc/contract';
import type { BackendService } from '@stowage/proto/stowage/backend_registry/v1/backend';
import type { Kysely } from 'kysely';
import { backendJob } from './backend-job.ts';
import { loadBackends } from './backend-standing.ts';
import type { Tables } from './tables.ts';

/** How often each backend is swept. */
export const sweepIntervalMs = 24 * 3_600_000;

/** What is done by then stays done: the next sweep goes on. */
const sweepTimeoutMs = 30 * 60_000;

/** Sweeps one backend of what writes left half-done and of staged content that nobody knows. One that is gone needs none. */
export function sweep(backends: Client<typeof BackendService>): JobHandler {
  return backendJob(async (id, context) => {
    const { temporaries, staged } = await backends.sweepBackend({ id }, context, { timeoutMs: sweepTimeoutMs });
    return { temporaries: Number(temporaries), staged: Number(staged) };
  });
}

/** A sweep of each backend, for a schedule: disabled ones have leftovers too. */
export async function scheduledSweeps(db: Kysely<Tables>): Promise<(NewJob & { dedupeKey: string })[]> {
  return [...(await loadBackends(db)).keys()].map((id) => ({
    kind: 'sweep',
    params: { backend_id: id },
    dedupeKey: `schedule/${id}`,
  }));
}
