import { inTransaction, query } from '@stowage/common/database/transaction';
import { answeredBefore, idempotent } from '@stowage/common/jobs/idempotency';
import { endpoint } from '@stowage/common/rpc/contract';
import type { Endpoint } from '@stowage/common/rpc/contract';
import { JobService, RetryJobResponseSchema, RunPendingResponseSchema } from '@stowage/proto/stowage/placement/v1/job';
import { PolicyService } from '@stowage/proto/stowage/placement/v1/policy';
import type { Kysely } from 'kysely';
import { getJob, listJobs, retryJob } from './jobs.ts';
import { findPolicy } from './policies.ts';
import { runPending } from './run-pending.ts';
import type { Tables } from './tables.ts';

/** Which function answers which call; `reads` is for short reading. */
export function placementEndpoints(db: Kysely<Tables>, reads: Kysely<Tables>): Endpoint[] {
  return [
    endpoint(PolicyService, {
      getPolicy: async ({ fileClass }) => ({ policy: await findPolicy(reads, fileClass) }),
    }),
    endpoint(JobService, {
      listJobs: (request) => listJobs(db, request),
      getJob: async ({ id }) => ({ job: await getJob(db, id) }),
      retryJob: ({ id }, context) =>
        inTransaction(db, (trx) =>
          idempotent(trx, context, RetryJobResponseSchema, async () => ({ job: await retryJob(trx, id) })),
        ),
      runPending: async (request, context) => {
        const before = await query(() => answeredBefore(db, context, RunPendingResponseSchema));
        if (before) return before;
        // The jobs run in transactions of their own, and running them twice does no harm: only the answer is kept.
        const run = await runPending(db, request, context.signal);
        return inTransaction(db, (trx) => idempotent(trx, context, RunPendingResponseSchema, async () => run));
      },
    }),
  ];
}
