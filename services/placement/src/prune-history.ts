import { sql } from 'kysely';
import type { Kysely, RawBuilder } from 'kysely';
import { query } from '@stowage/common/database/transaction';
import { idempotencyKeyTtlHours } from '@stowage/common/jobs/idempotency';
import type { JobHandler } from '@stowage/common/jobs/job';
import type { PlacementSettings } from './settings.ts';
import type { Tables } from './tables.ts';

const batch = 1_000;

/** Drops what has been kept long enough: finished and failed jobs, idempotency keys, published events; in bounded batches. */
export function pruneHistory(db: Kysely<Tables>, settings: PlacementSettings): JobHandler {
  return async (_job, { signal, progress }) => {
    const sweeps = {
      jobs: (): RawBuilder<unknown> => sql`
        delete from jobs.jobs where id in (select id from jobs.jobs where state in ('succeeded', 'cancelled')
          and finished_at < now() - ${settings.jobRetentionMs} * interval '1 ms' limit ${batch})`,
      failed_jobs: (): RawBuilder<unknown> => sql`
        delete from jobs.jobs where id in (select id from jobs.jobs where state = 'failed'
          and finished_at < now() - ${settings.failedJobRetentionMs} * interval '1 ms' limit ${batch})`,
      idempotency_keys: (): RawBuilder<unknown> => sql`
        delete from jobs.idempotency_keys where ctid in (select ctid from jobs.idempotency_keys
          where created_at < now() - ${idempotencyKeyTtlHours} * interval '1 hour' limit ${batch})`,
      events: (): RawBuilder<unknown> => sql`
        delete from jobs.outbox where id in (select id from jobs.outbox
          where published_at is not null and created_at < now() - ${settings.eventRetentionMs} * interval '1 ms' limit ${batch})`,
    };
    const counts: Record<string, number> = {};
    let done = 0;
    for (const [name, sweep] of Object.entries(sweeps)) {
      counts[name] = 0;
      for (let removed = batch; removed === batch && !signal.aborted;) {
        const { numAffectedRows } = await query(() => sweep().execute(db));
        removed = Number(numAffectedRows ?? 0n);
        counts[name] += removed;
        done += removed;
        progress({ done });
      }
    }
    return counts;
  };
}
