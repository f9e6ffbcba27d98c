import { inTransaction } from '@stowage/common/database/transaction';
import { AppError } from '@stowage/common/errors';
import { enqueueJob } from '@stowage/common/jobs/enqueue';
import type { JobHandler } from '@stowage/common/jobs/job';
import { backgroundContext } from '@stowage/common/rpc/context';
import type { Client } from '@stowage/common/rpc/contract';
import type { Logger } from '@stowage/common/runtime/logger';
import type { BackendService } from '@stowage/proto/stowage/backend_registry/v1/backend';
import type { Kysely } from 'kysely';
import { loadBackends } from './backend-standing.ts';
import { healthCheckOf } from './enqueue.ts';
import { textParam } from './job-params.ts';
import type { Tables } from './tables.ts';

/** A probe has several steps, each with a limit of its own. */
const checkTimeoutMs = 120_000;

/** Probes one backend as one of a series: a single failure is no outage. A backend that is gone needs none. */
export function healthCheck(backends: Client<typeof BackendService>): JobHandler {
  return async (job, { signal }) => {
    const id = textParam(job, 'backend_id');
    const context = backgroundContext(signal, job.id);
    try {
      const { backend } = await backends.checkBackend({ id, scheduled: true }, context, { timeoutMs: checkTimeoutMs });
      const { status = 'unknown', detail = null, latencyMs = null } = backend?.health ?? {};
      return { status, detail, latency_ms: latencyMs };
    } catch (error) {
      if (error instanceof AppError && error.code === 'not_found') return { gone: true };
      throw error;
    }
  };
}

/** Sees to it that a check of each enabled backend is pending for the next multiple of `everyMs`, once across all replicas. */
export class HealthCheckSchedule {
  readonly #db: Kysely<Tables>;
  readonly #everyMs: number;
  readonly #logger: Logger;
  #timer: NodeJS.Timeout | undefined;

  constructor(db: Kysely<Tables>, everyMs: number, logger: Logger) {
    this.#db = db;
    this.#everyMs = everyMs;
    this.#logger = logger;
  }

  start(): void {
    void this.#tick();
    this.#timer = setInterval(() => void this.#tick(), this.#everyMs);
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  async #tick(): Promise<void> {
    const runAfter = new Date(Math.ceil(Date.now() / this.#everyMs) * this.#everyMs);
    try {
      for (const { id, enabled } of (await loadBackends(this.#db)).values()) {
        if (!enabled) continue;
        const job = { ...healthCheckOf(id, `schedule/${id}`), runAfter };
        await inTransaction(this.#db, (trx) => enqueueJob(trx, job));
      }
    } catch (error) {
      this.#logger.warn({ err: error }, 'Checks of the backends could not be queued.');
    }
  }
}
