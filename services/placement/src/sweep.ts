import { AppError } from '@stowage/common/errors';
import type { NewJob } from '@stowage/common/jobs/enqueue';
import type { JobHandler } from '@stowage/common/jobs/job';
import { backgroundContext } from '@stowage/common/rpc/context';
import type { Client } from '@stowage/common/rpc/contract';
import type { BackendService } from '@stowage/proto/stowage/backend_registry/v1/backend';
import type { Kysely } from 'kysely';
import { loadBackends } from './backend-standing.ts';
import { textParam } from './job-params.ts';
import type { Tables } from './tables.ts';

/** How often each backend is swept. */
export const sweepIntervalMs = 24 * 3_600_000;

/** What is done by then stays done: the next sweep goes on. */
const sweepTimeoutMs = 30 * 60_000;

/** Sweeps one backend of what writes left half-done and of staged content that nobody knows. One that is gone needs none. */
export function sweep(backends: Client<typeof BackendService>): JobHandler {
  return async (job, { signal }) => {
    const id = textParam(job, 'backend_id');
    const context = backgroundContext(signal, job.id);
    try {
      const { temporaries, staged } = await backends.sweepBackend({ id }, context, { timeoutMs: sweepTimeoutMs });
      return { temporaries: Number(temporaries), staged: Number(staged) };
    } catch (error) {
      if (error instanceof AppError && error.code === 'not_found') return { gone: true };
      throw error;
    }
  };
}

/** A sweep of each backend, for a schedule: disabled ones have leftovers too. */
export async function scheduledSweeps(db: Kysely<Tables>): Promise<(NewJob & { dedupeKey: string })[]> {
  return [...(await loadBackends(db)).keys()].map((id) => ({
    kind: 'sweep',
    params: { backend_id: id },
    dedupeKey: `schedule/${id}`,
  }));
}
