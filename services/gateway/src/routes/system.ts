import { Type } from 'typebox';
import { version } from '@stowage/common/runtime/version';
import type { App, AppDependencies } from '../app-types.ts';
import { readMode, setMode } from '../auth/system-mode.ts';
import { contextOf } from '../http/call-context.ts';
import { Closed, Nullable } from '../http/schemas.ts';
import { checkReadiness } from '../readiness.ts';

const tags = ['System'];
const Health = Type.Object(
  { status: Type.Literal('ok'), version: Type.String(), uptime_seconds: Type.Integer() },
  { title: 'Health' },
);
const Status = Type.Union([Type.Literal('ready'), Type.Literal('degraded'), Type.Literal('unavailable')]);
const Ready = Type.Object(
  {
    status: Status,
    checks: Type.Array(
      Type.Object({
        name: Type.String(),
        status: Status,
        latency_ms: Type.Number(),
        detail: Nullable(Type.String()),
      }),
    ),
  },
  { title: 'Readiness' },
);
const Mode = Type.Object({ mode: Type.Union([Type.Literal('normal'), Type.Literal('read_only')]) }, { title: 'Mode' });

/** Contract §10: health, readiness, mode. */
export function systemRoutes(app: App, dependencies: AppDependencies): void {
  const { db } = dependencies;
  app.route({
    method: 'GET',
    url: '/api/system/health',
    config: { access: 'public' },
    schema: { tags, summary: 'This process lives', security: [], response: { 200: Health } },
    handler: async () => ({ status: 'ok' as const, version, uptime_seconds: Math.floor(process.uptime()) }),
  });

  app.route({
    method: 'GET',
    url: '/api/system/ready',
    config: { access: 'public' },
    schema: {
      tags,
      summary: 'The service as a whole takes requests',
      description:
        'Asks the database, the services behind the gateway and, through them, the event bus; never a storage backend. ' +
        'Without the event bus all requests work: `degraded`, with 200.',
      security: [],
      response: { 200: Ready, 503: Ready },
    },
    handler: async (request, reply) => {
      const readiness = await checkReadiness(dependencies, contextOf(request));
      if (readiness.status === 'unavailable') void reply.header('retry-after', '2');
      return reply.code(readiness.status === 'unavailable' ? 503 : 200).send(readiness);
    },
  });

  app.route({
    method: 'GET',
    url: '/api/system/mode',
    config: { access: 'viewer' },
    schema: { tags, summary: 'Normal or read-only', response: { 200: Mode } },
    handler: async () => ({ mode: await readMode(db) }),
  });

  app.route({
    method: 'PUT',
    url: '/api/system/mode',
    config: { access: 'admin', allowedReadOnly: true },
    schema: {
      tags,
      summary: 'Hold all writes, or let them through again',
      description: 'While read-only, every write is 503 with Retry-After, except login, logout and this route.',
      body: Closed({ mode: Type.Union([Type.Literal('normal'), Type.Literal('read_only')]) }),
      response: { 200: Mode },
    },
    handler: async (request) => {
      await setMode(db, request.body.mode);
      return { mode: request.body.mode };
    },
  });
}
