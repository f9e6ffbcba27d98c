import type { Backend as BackendMessage } from '@stowage/proto/stowage/backend_registry/v1/backend';
import { Type } from 'typebox';
import type { Static } from 'typebox';
import type { App, AppDependencies } from '../app-types.ts';
import { contextOf } from '../http/call-context.ts';
import { setEtag } from '../http/conditions.ts';
import { Closed, Id, Nullable, Page, pageFields, Time } from '../http/schemas.ts';
import { present, timeOf, timeOrNull } from './nodes.ts';

const tags = ['Backends'];

const Backend = Type.Object(
  {
    id: Id,
    name: Type.String(),
    type: Type.String({ enum: ['local_directory', 's3', 'webdav'] }),
    state: Type.String({ enum: ['enabled', 'disabled'] }),
    is_default: Type.Boolean(),
    config: Type.Record(Type.String(), Type.Unknown(), { description: 'Public values only.' }),
    secret_fields: Type.Array(Type.String(), { description: 'Which credentials are set; their values never leave.' }),
    health: Type.Object({
      status: Type.String({ enum: ['unknown', 'healthy', 'unhealthy'] }),
      checked_at: Nullable(Time),
      latency_ms: Nullable(Type.Number()),
      detail: Nullable(Type.String()),
    }),
    usage: Type.Object({ replicas: Type.Integer(), bytes: Type.Integer() }),
    version: Type.Integer(),
    created_at: Time,
    updated_at: Time,
  },
  { title: 'Backend' },
);

/** Contract §6: where content lies. So far there is the default local backend, to be read. */
export function backendRoutes(app: App, { backends }: AppDependencies): void {
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
    schema: { tags, summary: 'Read a backend', params: Type.Object({ backend_id: Id }), response: { 200: Backend } },
    handler: async (request, reply) => {
      const { backend } = await backends.getBackend({ id: request.params.backend_id }, contextOf(request));
      const shown = toBackend(present(backend));
      setEtag(reply, shown.version);
      return shown;
    },
  });
}

function toBackend(backend: BackendMessage): Static<typeof Backend> {
  const { health } = backend;
  return {
    id: backend.id,
    name: backend.name,
    type: backend.type,
    state: backend.enabled ? 'enabled' : 'disabled',
    is_default: backend.isDefault,
    config: backend.config ?? {},
    secret_fields: backend.secretFields,
    health: {
      status: health?.status ?? 'unknown',
      checked_at: timeOrNull(health?.checkedAt),
      latency_ms: health?.latencyMs ?? null,
      detail: health?.detail ?? null,
    },
    usage: { replicas: Number(backend.replicas), bytes: Number(backend.bytes) },
    version: Number(backend.version),
    created_at: timeOf(backend.createdAt),
    updated_at: timeOf(backend.updatedAt),
  };
}
