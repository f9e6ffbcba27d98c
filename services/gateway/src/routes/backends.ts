import type { Backend as BackendMessage } from '@stowage/proto/stowage/backend_registry/v1/backend';
import type { FastifyReply } from 'fastify';
import { Type } from 'typebox';
import type { App, AppDependencies } from '../app-types.ts';
import { contextOf } from '../http/call-context.ts';
import { ifMatchOf, setEtag } from '../http/conditions.ts';
import { Closed, Id, Name, Page, pageFields } from '../http/schemas.ts';
import { Backend, BackendDetail, Config, toBackend, toDeletable } from './backends-shapes.ts';
import { present } from './nodes.ts';

export const tags = ['Backends'];
export const Params = Type.Object({ backend_id: Id });

/** More than all steps of a check may take. */
export const checked = { timeoutMs: 45_000 };

const IsDefault = Type.Optional(
  Type.Boolean({
    description:
      'True makes it the default backend in the place of the one before; not on WebDAV, where uploads can’t grow.',
  }),
);

type Backends = AppDependencies['backends'];

/** Contract §6: where content lies, for admins: reading, making and changing. */
export function backendRoutes(app: App, { backends }: AppDependencies): void {
  readRoutes(app, backends);
  changeRoutes(app, backends);
}

/** A backend as the answer, with its ETag. */
export function answer(reply: FastifyReply, backend: BackendMessage | undefined) {
  const shown = toBackend(present(backend));
  setEtag(reply, shown.version);
  return shown;
}

function readRoutes(app: App, backends: Backends): void {
  app.route({
    method: 'GET',
    url: '/api/backends',
    config: { access: 'admin' },
    schema: {
      tags,
      summary: 'List backends by name',
      querystring: Closed(pageFields),
      response: { 200: Page(Backend, 'BackendList') },
    },
    handler: async (request) => {
      const { items, nextCursor } = await backends.listBackends(request.query, contextOf(request));
      return { items: items.map(toBackend), next_cursor: nextCursor ?? null };
    },
  });

  app.route({
    method: 'GET',
    url: '/api/backends/:backend_id',
    config: { access: 'admin', problems: ['not_found'] },
    schema: {
      tags,
      summary: 'Read a backend, with what keeps it from being deleted',
      params: Params,
      response: { 200: BackendDetail },
    },
    handler: async (request, reply) => {
      const { backend, blockers } = await backends.getBackend({ id: request.params.backend_id }, contextOf(request));
      return { ...answer(reply, backend), deletable: toDeletable(blockers) };
    },
  });
}

function changeRoutes(app: App, backends: Backends): void {
  app.route({
    method: 'POST',
    url: '/api/backends',
    config: { access: 'admin', idempotent: true, waits: true, problems: ['name_conflict'] },
    schema: {
      tags,
      summary: 'Make a backend and check it once',
      description: 'A check that fails does not refuse the backend: its result is in `health`.',
      body: Closed({
        name: Name,
        type: Type.Union([Type.Literal('local_directory'), Type.Literal('s3'), Type.Literal('webdav')]),
        config: Config,
        is_default: IsDefault,
      }),
      response: { 201: Backend },
    },
    handler: async (request, reply) => {
      const { name, type, config, is_default: isDefault = false } = request.body;
      const { backend } = await backends.createBackend({ name, type, config, isDefault }, contextOf(request), checked);
      void reply.code(201).header('location', `/api/backends/${present(backend).id}`);
      return answer(reply, backend);
    },
  });

  app.route({
    method: 'PATCH',
    url: '/api/backends/:backend_id',
    config: {
      access: 'admin',
      idempotent: true,
      waits: true,
      problems: ['not_found', 'name_conflict', 'state_conflict', 'precondition_failed', 'backend_in_use'],
    },
    schema: {
      tags,
      summary: 'Change the name or parts of the configuration, and check the backend once',
      params: Params,
      body: Closed({ name: Type.Optional(Name), config: Type.Optional(Config), is_default: IsDefault }),
      response: { 200: Backend },
    },
    handler: async (request, reply) => {
      const { name, config, is_default: isDefault } = request.body;
      const { backend } = await backends.updateBackend(
        { id: request.params.backend_id, name, config, isDefault, ifMatch: ifMatchOf(request) },
        contextOf(request),
        checked,
      );
      return answer(reply, backend);
    },
  });
}
