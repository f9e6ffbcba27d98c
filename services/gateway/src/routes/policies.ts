import type { Policy as PolicyMessage } from '@stowage/proto/stowage/placement/v1/policy';
import { AppError } from '@stowage/common/errors';
import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import type { Static } from 'typebox';
import type { App, AppDependencies } from '../app-types.ts';
import { contextOf } from '../http/call-context.ts';
import { ifMatchOf, setEtag } from '../http/conditions.ts';
import { Closed, FileClass, Id, Time } from '../http/schemas.ts';
import { Job, toJob } from './jobs.ts';
import { present, timeOf } from './nodes.ts';
import { previewRoute } from './policies-preview.ts';

const tags = ['Placement'];
const Params = Type.Object({ file_class: FileClass });
const Copies = Type.Integer({ minimum: 1, maximum: 100 });

const Policy = Type.Object(
  {
    file_class: Type.String(),
    backends: Type.Array(Id, { description: 'In order of preference: later ones stand in for earlier ones.' }),
    replicas: Type.Integer(),
    sync_replicas: Type.Integer({ description: 'How many copies are durable before an upload is finalized.' }),
    version: Type.Integer(),
    updated_at: Time,
  },
  { title: 'PlacementPolicy' },
);

const SavedPolicy = Type.Object({ policy: Policy, job: Job }, { title: 'SavedPolicy' });

/** The address of the preview names no class: files of such a class have the default policy. */
async function refuseReserved({ url }: FastifyRequest): Promise<void> {
  if (!/\/preview(\?|$)/.test(url)) return;
  throw new AppError('method_not_allowed', 'Use GET or HEAD here.', { members: { allow: ['GET', 'HEAD'] } });
}

/** Contract §8: where the content of each class of files lies. */
export function policyRoutes(app: App, dependencies: AppDependencies): void {
  readRoutes(app, dependencies);
  changeRoutes(app, dependencies);
  previewRoute(app, dependencies);
}

function readRoutes(app: App, { policies }: AppDependencies): void {
  app.route({
    method: 'GET',
    url: '/api/policies/placement',
    config: { access: 'admin' },
    schema: {
      tags,
      summary: 'List the placement policies, by class',
      response: { 200: Type.Object({ items: Type.Array(Policy) }, { title: 'PlacementPolicyList' }) },
    },
    handler: async (request) => {
      const { items } = await policies.listPolicies({}, contextOf(request));
      return { items: items.map(toPolicy) };
    },
  });

  app.route({
    method: 'GET',
    url: '/api/policies/placement/:file_class',
    config: { access: 'admin', problems: ['not_found', 'validation_failed'] },
    schema: { tags, summary: 'Read the placement policy of a class', params: Params, response: { 200: Policy } },
    handler: async (request, reply) => {
      const wanted = { fileClass: request.params.file_class, exact: true };
      const policy = toPolicy(present((await policies.getPolicy(wanted, contextOf(request))).policy));
      setEtag(reply, policy.version);
      return policy;
    },
  });
}

function changeRoutes(app: App, { policies }: AppDependencies): void {
  app.route({
    method: 'PUT',
    url: '/api/policies/placement/:file_class',
    config: { access: 'admin', idempotent: true, problems: ['state_conflict', 'precondition_failed'] },
    preValidation: refuseReserved,
    schema: {
      tags,
      summary: 'Save the placement policy of a class, and queue the full reconcile that makes it so',
      params: Params,
      body: Closed({
        backends: Type.Array(Id, { minItems: 1, maxItems: 100 }),
        replicas: Copies,
        sync_replicas: Type.Optional(Copies),
      }),
      response: { 200: SavedPolicy },
    },
    handler: async (request, reply) => {
      const { backends: backendIds, replicas, sync_replicas: syncReplicas } = request.body;
      const wanted = { fileClass: request.params.file_class, backendIds, replicas, ifMatch: ifMatchOf(request) };
      const saved = await policies.putPolicy({ ...wanted, syncReplicas }, contextOf(request));
      const policy = toPolicy(present(saved.policy));
      setEtag(reply, policy.version);
      return { policy, job: toJob(present(saved.job)) };
    },
  });

  app.route({
    method: 'DELETE',
    url: '/api/policies/placement/:file_class',
    config: { access: 'admin', idempotent: true, problems: ['not_found', 'state_conflict', 'precondition_failed'] },
    preValidation: refuseReserved,
    schema: {
      tags,
      summary: 'Remove the placement policy of a class, which has the default one then, and queue a full reconcile',
      params: Params,
      response: { 200: Type.Object({ job: Job }, { title: 'RemovedPolicy' }) },
    },
    handler: async (request) => {
      const wanted = { fileClass: request.params.file_class, ifMatch: ifMatchOf(request) };
      return { job: toJob(present((await policies.deletePolicy(wanted, contextOf(request))).job)) };
    },
  });
}

function toPolicy(policy: PolicyMessage): Static<typeof Policy> {
  return {
    file_class: policy.fileClass,
    backends: policy.backendIds,
    replicas: policy.replicas,
    sync_replicas: policy.syncReplicas,
    version: Number(policy.version),
    updated_at: timeOf(policy.updatedAt),
  };
}
