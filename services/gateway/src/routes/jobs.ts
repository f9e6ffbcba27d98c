import type { Job as JobMessage } from '@stowage/proto/stowage/placement/v1/job';
import { jobStates } from '@stowage/common/jobs/job';
import { Type } from 'typebox';
import type { Static } from 'typebox';
import type { App, AppDependencies } from '../app-types.ts';
import { contextOf } from '../http/call-context.ts';
import { Closed, Id, Nullable, Page, pageFields, Time } from '../http/schemas.ts';
import { present, timeOf, timeOrNull } from './nodes.ts';

export const tags = ['Jobs'];
const Params = Type.Object({ job_id: Id });
const JobState = Type.Union(jobStates.map((state) => Type.Literal(state)));
export const Kind = Type.String({ pattern: '^[a-z_]{1,64}$', examples: ['purge_recycle_bin'] });

export const Job = Type.Object(
  {
    id: Id,
    kind: Type.String(),
    state: Type.String({ enum: [...jobStates] }),
    attempt: Type.Integer(),
    max_attempts: Type.Integer(),
    run_after: Time,
    params: Type.Record(Type.String(), Type.Unknown()),
    progress: Type.Object({ done: Type.Integer(), total: Nullable(Type.Integer()), bytes: Type.Integer() }),
    result: Nullable(Type.Record(Type.String(), Type.Unknown())),
    error: Nullable(Type.Object({ code: Type.String(), detail: Type.String() })),
    trace_id: Nullable(Type.String()),
    created_at: Time,
    started_at: Nullable(Time),
    finished_at: Nullable(Time),
  },
  { title: 'Job' },
);

/** Contract §7: background jobs, for admins. */
export function jobRoutes(app: App, { jobs }: AppDependencies): void {
  app.route({
    method: 'GET',
    url: '/api/jobs',
    config: { access: 'admin' },
    schema: {
      tags,
      summary: 'List jobs, newest first',
      querystring: Closed({ ...pageFields, state: Type.Optional(JobState), kind: Type.Optional(Kind) }),
      response: { 200: Page(Job, 'JobList') },
    },
    handler: async (request) => {
      const { items, nextCursor } = await jobs.listJobs(request.query, contextOf(request));
      return { items: items.map(toJob), next_cursor: nextCursor ?? null };
    },
  });

  app.route({
    method: 'GET',
    url: '/api/jobs/:job_id',
    config: { access: 'admin', problems: ['not_found'] },
    schema: { tags, summary: 'Read a job', params: Params, response: { 200: Job } },
    handler: async (request) =>
      toJob(present((await jobs.getJob({ id: request.params.job_id }, contextOf(request))).job)),
  });

  app.route({
    method: 'POST',
    url: '/api/jobs/:job_id/retry',
    config: { access: 'admin', idempotent: true, problems: ['not_found', 'state_conflict'] },
    schema: {
      tags,
      summary: 'Make a failed job pending again',
      params: Params,
      body: Closed({}),
      response: { 200: Job },
    },
    handler: async (request) =>
      toJob(present((await jobs.retryJob({ id: request.params.job_id }, contextOf(request))).job)),
  });

  app.route({
    method: 'POST',
    url: '/api/jobs/:job_id/cancel',
    config: { access: 'admin', idempotent: true, problems: ['not_found', 'state_conflict'] },
    schema: {
      tags,
      summary: 'Cancel a job that has not ended',
      params: Params,
      body: Closed({}),
      response: { 200: Job },
    },
    handler: async (request) =>
      toJob(present((await jobs.cancelJob({ id: request.params.job_id }, contextOf(request))).job)),
  });
}

export function toJob(job: JobMessage): Static<typeof Job> {
  return {
    id: job.id,
    kind: job.kind,
    state: job.state,
    attempt: job.attempt,
    max_attempts: job.maxAttempts,
    run_after: timeOf(job.runAfter),
    params: job.params ?? {},
    progress: {
      done: Number(job.progress?.done ?? 0n),
      total: job.progress?.total === undefined ? null : Number(job.progress.total),
      bytes: Number(job.progress?.bytes ?? 0n),
    },
    result: job.result ?? null,
    error: job.error ? { code: job.error.code, detail: job.error.detail } : null,
    trace_id: job.traceId ?? null,
    created_at: timeOf(job.createdAt),
    started_at: timeOrNull(job.startedAt),
    finished_at: timeOrNull(job.finishedAt),
  };
}
