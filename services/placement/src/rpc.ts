import { inTransaction, query } from '@stowage/common/database/transaction';
import { answeredBefore, idempotent } from '@stowage/common/jobs/idempotency';
import { endpoint } from '@stowage/common/rpc/contract';
import type { Client, Endpoint } from '@stowage/common/rpc/contract';
import { readJob } from '@stowage/common/jobs/read-job';
import type { ReplicaService } from '@stowage/proto/stowage/catalog/v1/replica';
import {
  CancelJobResponseSchema,
  EnqueueFullReconcileResponseSchema,
  EnqueueHealthChecksResponseSchema,
  JobService,
  RetryJobResponseSchema,
  RunPendingResponseSchema,
} from '@stowage/proto/stowage/placement/v1/job';
import {
  DeletePolicyResponseSchema,
  PolicyService,
  PutPolicyResponseSchema,
} from '@stowage/proto/stowage/placement/v1/policy';
import type { Kysely } from 'kysely';
import { cancelJob } from './cancel-job.ts';
import { deletePolicy, putPolicy } from './change-policy.ts';
import { enqueueFullReconcile, enqueueHealthChecks } from './enqueue.ts';
import { listJobs, retryJob } from './jobs.ts';
import type { PlanLimits } from './planner/facts.ts';
import { findPolicy, listPolicies, ownPolicy, policyMessage } from './policies.ts';
import { previewPlacement } from './preview.ts';
import { runPending } from './run-pending.ts';
import type { Tables } from './tables.ts';

interface PlacementParts {
  db: Kysely<Tables>;
  /** For short reading. */
  reads: Kysely<Tables>;
  replicas: Client<typeof ReplicaService>;
  limits: PlanLimits;
}

/** Which function answers which call. */
export function placementEndpoints(parts: PlacementParts): Endpoint[] {
  return [policyEndpoint(parts), jobEndpoint(parts.db)];
}

function policyEndpoint(parts: PlacementParts): Endpoint {
  const { db, reads } = parts;
  return endpoint(PolicyService, {
    getPolicy: async ({ fileClass, exact }) => ({
      policy: policyMessage(await (exact ? ownPolicy(reads, fileClass) : findPolicy(reads, fileClass))),
    }),
    listPolicies: async () => ({ items: (await listPolicies(db)).map(policyMessage) }),
    putPolicy: (request, context) =>
      inTransaction(db, (trx) => idempotent(trx, context, PutPolicyResponseSchema, () => putPolicy(trx, request))),
    deletePolicy: (request, context) =>
      inTransaction(db, (trx) =>
        idempotent(trx, context, DeletePolicyResponseSchema, () => deletePolicy(trx, request)),
      ),
    previewPlacement: (request, context) => previewPlacement(parts, request, context),
  });
}

function jobEndpoint(db: Kysely<Tables>): Endpoint {
  return endpoint(JobService, {
    listJobs: (request) => listJobs(db, request),
    getJob: async ({ id }) => ({ job: await readJob(db, id) }),
    retryJob: ({ id }, context) =>
      inTransaction(db, (trx) =>
        idempotent(trx, context, RetryJobResponseSchema, async () => ({ job: await retryJob(trx, id) })),
      ),
    cancelJob: ({ id }, context) =>
      inTransaction(db, (trx) =>
        idempotent(trx, context, CancelJobResponseSchema, async () => ({ job: await cancelJob(trx, id) })),
      ),
    enqueueHealthChecks: (_request, context) =>
      inTransaction(db, (trx) =>
        idempotent(trx, context, EnqueueHealthChecksResponseSchema, async () => ({
          jobs: await enqueueHealthChecks(trx),
        })),
      ),
    enqueueFullReconcile: (request, context) =>
      inTransaction(db, (trx) =>
        idempotent(trx, context, EnqueueFullReconcileResponseSchema, async () => ({
          job: await enqueueFullReconcile(trx, request),
        })),
      ),
    runPending: async (request, context) => {
      const before = await query(() => answeredBefore(db, context, RunPendingResponseSchema));
      if (before) return before;
      // The jobs run in transactions of their own, and running them twice does no harm: only the answer is kept.
      const run = await runPending(db, request, context.signal);
      return inTransaction(db, (trx) => idempotent(trx, context, RunPendingResponseSchema, async () => run));
    },
  });
}
