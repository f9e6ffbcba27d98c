import type { NewJob } from '@stowage/common/jobs/enqueue';
import type { JobHandler } from '@stowage/common/jobs/job';
import type { Client } from '@stowage/common/rpc/contract';
import type { BackendService } from '@stowage/proto/stowage/backend_registry/v1/backend';
import type { Kysely } from 'kysely';
import { backendJob } from './backend-job.ts';
import { loadBackends } from './backend-standing.ts';
import { healthCheckOf } from './enqueue.ts';
import type { Tables } from './tables.ts';

/** A probe has several steps, each with a limit of its own. */
const checkTimeoutMs = 120_000;

/** Probes one backend as one of a series: a single failure is no outage. A backend that is gone needs none. */
export function healthCheck(backends: Client<typeof BackendService>): JobHandler {
  return backendJob(async (id, context) => {
    const { backend } = await backends.checkBackend({ id, scheduled: true }, context, { timeoutMs: checkTimeoutMs });
    const { status = 'unknown', detail = null, latencyMs = null } = backend?.health ?? {};
    return { status, detail, latency_ms: latencyMs };
  });
}

/** A check of each enabled backend, for a schedule. */
export async function scheduledHealthChecks(db: Kysely<Tables>): Promise<(NewJob & { dedupeKey: string })[]> {
  const enabled = [...(await loadBackends(db)).values()].filter((backend) => backend.enabled);
  return enabled.map(({ id }) => healthCheckOf(id, `schedule/${id}`));
}
