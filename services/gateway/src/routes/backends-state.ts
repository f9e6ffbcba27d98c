import { AppError } from '@stowage/common/errors';
import { Type } from 'typebox';
import type { App, AppDependencies } from '../app-types.ts';
import { contextOf } from '../http/call-context.ts';
import { ifMatchOf } from '../http/conditions.ts';
import { sendNothing } from '../http/no-content.ts';
import { Closed, NoContent } from '../http/schemas.ts';
import { answer, checked, Params, tags } from './backends.ts';
import { Backend } from './backends-shapes.ts';

const Forgotten = Type.Object(
  {
    forgotten: Type.Integer(),
    lost: Type.Integer({ description: 'How many of them were the last good copy.' }),
    remaining: Type.Integer({ description: 'Ask again while this is above 0.' }),
  },
  { title: 'ForgottenReplicas' },
);

type Backends = AppDependencies['backends'];

/** Contract §6: checking, enabling, disabling and ending a backend. */
export function backendStateRoutes(app: App, { backends }: AppDependencies): void {
  stateRoutes(app, backends);
  endRoutes(app, backends);
}

function stateRoutes(app: App, backends: Backends): void {
  app.route({
    method: 'POST',
    url: '/api/backends/:backend_id/check',
    config: { access: 'admin', waits: true, problems: ['not_found'] },
    schema: {
      tags,
      summary: 'Probe a backend now: marker, write, read, range, compare, delete',
      params: Params,
      body: Closed({}),
      response: { 200: Backend },
    },
    handler: async (request, reply) => {
      const { backend } = await backends.checkBackend({ id: request.params.backend_id }, contextOf(request), checked);
      return answer(reply, backend);
    },
  });

  for (const [action, enabled, summary] of [
    ['enable', true, 'Let new content go to a backend, and check it once'],
    ['disable', false, 'Let no new content go to a backend; what it holds stays readable'],
  ] as const) {
    app.route({
      method: 'POST',
      url: `/api/backends/:backend_id/${action}`,
      config: { access: 'admin', idempotent: true, waits: true, problems: ['not_found', 'precondition_failed'] },
      schema: { tags, summary, params: Params, body: Closed({}), response: { 200: Backend } },
      handler: async (request, reply) => {
        const { backend } = await backends.setBackendEnabled(
          { id: request.params.backend_id, enabled, ifMatch: ifMatchOf(request) },
          contextOf(request),
          checked,
        );
        return answer(reply, backend);
      },
    });
  }
}

function endRoutes(app: App, backends: Backends): void {
  app.route({
    method: 'DELETE',
    url: '/api/backends/:backend_id',
    config: {
      access: 'admin',
      idempotent: true,
      problems: ['not_found', 'precondition_failed', 'backend_delete_refused'],
    },
    schema: {
      tags,
      summary: 'Delete a backend that is disabled, empty, named by no policy and not the default one',
      description: '409 `backend_delete_refused` tells all that keeps it, in `blockers`.',
      params: Params,
      response: { 204: NoContent },
    },
    handler: async (request, reply) => {
      await backends.deleteBackend({ id: request.params.backend_id, ifMatch: ifMatchOf(request) }, contextOf(request));
      return sendNothing(reply);
    },
  });

  app.route({
    method: 'POST',
    url: '/api/backends/:backend_id/forget-replicas',
    config: {
      access: 'admin',
      waits: true,
      problems: ['not_found', 'state_conflict', 'confirmation_required'],
    },
    schema: {
      tags,
      summary: 'Forget what a disabled backend held that is lost for good',
      description:
        '409 `state_conflict` with `last_copies` while it holds the last good copy of anything, unless `accept_loss` is true. A copy on a backend that is unhealthy does not count.',
      params: Params,
      body: Closed({
        confirm: Type.Optional(Type.Boolean()),
        accept_loss: Type.Optional(Type.Boolean({ default: false })),
      }),
      response: { 200: Forgotten },
    },
    handler: async (request) => {
      const { confirm = false, accept_loss: acceptLoss = false } = request.body;
      const { backend_id: id } = request.params;
      if (!confirm) throw new AppError('confirmation_required', 'Send "confirm": true to forget the replicas.');
      const { forgotten, lost, remaining } = await backends.forgetReplicas(
        { id, acceptLoss },
        contextOf(request),
        checked,
      );
      return { forgotten: Number(forgotten), lost: Number(lost), remaining: Number(remaining) };
    },
  });
}
