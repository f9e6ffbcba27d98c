import { begun } from '@stowage/common/bytes/begun';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import type { App, AppDependencies } from '../app-types.ts';
import { contextOf } from '../http/call-context.ts';
import { prefersGzip } from '../http/content-coding.ts';
import { Closed, Id } from '../http/schemas.ts';
import { sendStream } from '../http/send-stream.ts';

const tags = ['Metadata'];

const Document = {
  description: 'The metadata document; its records are described by `GET /api/exports/metadata/schema`.',
  content: { 'application/json': { schema: Type.Object({}, { additionalProperties: true }) } },
};
const Schema = {
  description: 'JSON Schema 2020-12.',
  content: { 'application/schema+json': { schema: Type.Object({}, { additionalProperties: true }) } },
};

/** Contract §9: metadata out. */
export function exportRoutes(app: App, dependencies: AppDependencies): void {
  app.route({
    method: ['GET', 'HEAD'],
    url: '/api/exports/metadata',
    exposeHeadRoute: false,
    config: {
      access: 'admin',
      problems: ['not_found', 'state_conflict'],
      requestHeaders: { 'Accept-Encoding': 'The document is compressed where `gzip` is preferred.' },
      unhurried: true,
    },
    schema: {
      tags,
      summary: 'All metadata as one JSON document',
      description:
        'One consistent snapshot with its digest, streamed; users, sessions and secrets are not part of it. An answer that breaks ' +
        'off is no document. With `id`, an export that was kept: the one made before an import, or one of the schedule.',
      querystring: Closed({ id: Type.Optional(Id) }),
      response: { 200: Document },
    },
    handler: async (request, reply) => sendExport(dependencies, request, reply, request.query.id ?? ''),
  });

  app.route({
    method: 'GET',
    url: '/api/exports/metadata/schema',
    config: { access: 'admin' },
    schema: { tags, summary: 'The JSON Schema of metadata documents', response: { 200: Schema } },
    handler: async (request, reply) => {
      const { schema } = await dependencies.documents.getSchema({}, contextOf(request));
      void reply.type('application/schema+json').send(Buffer.from(schema));
      await reply;
    },
  });
}

async function sendExport(
  { readExport }: AppDependencies,
  request: FastifyRequest,
  reply: FastifyReply,
  exportId: string,
): Promise<FastifyReply> {
  const gzip = prefersGzip(request.headers['accept-encoding']);
  const context = contextOf(request);
  // What fails until here is a problem that can be told.
  const body = await begun(await readExport({ exportId, gzip }, context), context.signal);
  const headers = {
    'content-type': 'application/json',
    'content-disposition': `attachment; filename="${fileName(exportId)}"`,
    'cache-control': 'no-store',
    vary: 'Accept-Encoding',
    ...(gzip ? { 'content-encoding': 'gzip' } : {}),
  };
  if (request.method === 'HEAD') {
    body.destroy();
    return reply.headers(headers).send();
  }
  await sendStream(reply, headers, body, context.signal);
  return reply;
}

function fileName(exportId: string): string {
  const now = new Date().toISOString().replace(/[-:]|\.\d+/g, '');
  return `stowage-metadata-${exportId === '' ? now : exportId}.json`;
}
