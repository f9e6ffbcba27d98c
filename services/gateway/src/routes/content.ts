import { LRUCache } from 'lru-cache';
import type { FastifyReply } from 'fastify';
import { Type } from 'typebox';
import type { App, AppDependencies } from '../app-types.ts';
import { makePreview } from '../content/preview.ts';
import type { Preview } from '../content/preview.ts';
import { sendContent } from '../content/send-content.ts';
import { ShortContent } from '../content/short-content.ts';
import { contextOf } from '../http/call-context.ts';
import { Closed, Id } from '../http/schemas.ts';

const tags = ['Content'];
const Params = Type.Object({ file_id: Id });
const Bytes = {
  description: 'The bytes, under the type of the file.',
  content: { '*/*': { schema: Type.String({ format: 'binary' }) } },
};
const PreviewBytes = {
  description: 'The preview.',
  content: {
    'image/webp': { schema: Type.String({ format: 'binary' }) },
    'text/plain': { schema: Type.String() },
  },
};
const readProblems = ['not_found', 'state_conflict', 'unavailable'] as const;

const requestHeaders = {
  Range: 'One range of bytes, such as `bytes=0-1023`; several are answered with the whole.',
  'If-Range': 'The ETag or date that the range is meant for; for another content the whole is sent.',
  'If-None-Match': 'ETags that the client has already; a match is 304.',
};

/** Contract §4: the bytes of a file. */
export function contentRoutes(app: App, dependencies: AppDependencies): void {
  byteRoutes(app, dependencies);
  previewRoute(app, dependencies);
}

function byteRoutes(app: App, dependencies: AppDependencies): void {
  const short = new ShortContent();
  for (const disposition of ['download', 'stream'] as const) {
    app.route({
      method: ['GET', 'HEAD'],
      url: `/api/files/:file_id/${disposition}`,
      exposeHeadRoute: false,
      config: {
        access: 'viewer',
        problems: [...readProblems, 'range_not_satisfiable', 'precondition_failed'],
        requestHeaders,
        unhurried: true,
      },
      schema: {
        tags,
        summary: disposition === 'download' ? 'Download a file' : 'Stream a file to a player or viewer',
        description: 'Takes one `Range`, `If-Range`, `If-None-Match`. Each MiB is checked before it leaves.',
        params: Params,
        response: { 200: Bytes, 206: Bytes, 304: Type.Null({ description: 'Not modified.' }) },
      },
      handler: async (request, reply) => {
        await sendContent(dependencies, request, reply, request.params.file_id, { disposition, short });
        return reply;
      },
    });
  }
}

function previewRoute(app: App, dependencies: AppDependencies): void {
  const cache = new LRUCache<string, Preview>({
    maxSize: dependencies.settings.previewCacheBytes,
    sizeCalculation: (preview) => preview.bytes.length + 200,
  });
  app.route({
    method: 'GET',
    url: '/api/files/:file_id/preview',
    config: {
      access: 'viewer',
      problems: [...readProblems, 'unsupported_media_type', 'unprocessable'],
      unhurried: true,
    },
    schema: {
      tags,
      summary: 'A small picture or text made from a file',
      description:
        'Images become WebP within `size` pixels; text its first 64 KiB as text/plain; anything else is 415.',
      params: Params,
      querystring: Closed({ size: Type.Integer({ minimum: 64, maximum: 2048, default: 512 }) }),
      response: { 200: PreviewBytes },
    },
    handler: async (request, reply) => {
      const { file_id: fileId } = request.params;
      const preview = await makePreview(dependencies, cache, { fileId, size: request.query.size }, contextOf(request));
      await sendPreview(reply, preview);
    },
  });
}

function sendPreview(reply: FastifyReply, preview: Preview): FastifyReply {
  return reply
    .headers({
      'content-type': preview.mediaType,
      'content-security-policy': "default-src 'none'; sandbox; frame-ancestors 'self'",
      'x-frame-options': 'SAMEORIGIN',
      'cross-origin-resource-policy': 'same-origin',
      etag: preview.etag,
      'cache-control': 'private, no-cache',
    })
    .send(preview.bytes);
}
