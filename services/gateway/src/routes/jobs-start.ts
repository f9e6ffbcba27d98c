import { Type } from 'typebox';
import type { App, AppDependencies } from '../app-types.ts';
import { contextOf } from '../http/call-context.ts';
import { Closed } from '../http/schemas.ts';
import { Job, Kind, tags, toJob } from './jobs.ts';
import { present } from './nodes.ts';

const Pending = Type.Object(
  { selected: Type.Integer(), succeeded: Type.Integer(), failed: Type.Integer(), running: Type.Integer() },
  { title: 'PendingRun' },
);

/** Contract §7: jobs that an admin wishes for. */
export function jobStartRoutes(app: App, { jobs }: AppDependencies): void {
  app.route({
    method: 'POST',
    url: '/api/jobs/run-pending',
    config: { access: 'admin', idempotent: true, waits: true },
    schema: {
      tags,
      summary: 'Start what is due now, and wait for it where asked to',
      body: Closed({
        kinds: Type.Optional(Type.Array(Kind, { maxItems: 32 })),
        limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000 })),
        wait_seconds: Type.Optional(Type.Integer({ minimum: 0, maximum: 60 })),
      }),
      response: { 200: Pending },
    },
    handler: async (request) => {
      const { kinds = [], limit = 100, wait_seconds: waitSeconds = 0 } = request.body;
      const timeoutMs = waitSeconds * 1000 + 10_000;
      const { selected, succeeded, failed, running } = await jobs.runPending(
        { kinds, limit, waitSeconds },
        contextOf(request),
        { timeoutMs },
      );
      return { selected, succeeded, failed, running };
    },
  });

  app.route({
    method: 'POST',
    url: '/api/jobs/enqueue-health-checks',
    config: { access: 'admin', idempotent: true },
    schema: {
      tags,
      summary: 'Queue a check of each enabled backend',
      body: Closed({}),
      response: { 202: Type.Object({ jobs: Type.Array(Job) }, { title: 'HealthCheckJobs' }) },
    },
    handler: async (request, reply) => {
      const { jobs: queued } = await jobs.enqueueHealthChecks({}, contextOf(request));
      reply.code(202);
      return { jobs: queued.map(toJob) };
    },
  });

  app.route({
    method: 'POST',
    url: '/api/jobs/enqueue-full-reconcile',
    config: { access: 'admin', idempotent: true },
    schema: {
      tags,
      summary: 'Queue a full reconcile; one that is pending already is answered again',
      description:
        'It also compares what each backend holds with the metadata, and tells of both in its result. Objects that no metadata ' +
        'knows are removed once they are older than the grace time and were seen in two runs, but not where more than a tenth ' +
        'of all objects on a backend would go, nor for 7 days after an import: `remove_unknown` overrides these two.',
      body: Closed({
        remove_unknown: Type.Optional(
          Type.Boolean({ description: 'Unknown objects may go though they are many, or removals are held.' }),
        ),
      }),
      response: { 202: Type.Object({ job: Job }, { title: 'ReconcileJob' }) },
    },
    handler: async (request, reply) => {
      const { remove_unknown: removeUnknown = false } = request.body;
      const { job } = await jobs.enqueueFullReconcile({ removeUnknown }, contextOf(request));
      reply.code(202);
      return { job: toJob(present(job)) };
    },
  });
}
