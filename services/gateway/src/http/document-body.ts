import { AppError } from '@stowage/common/errors';
import type { ErrorCode } from '@stowage/common/errors';
import type { FastifyRequest } from 'fastify';
import type { Readable } from 'node:stream';
import type { App } from '../app-types.ts';
import { drain } from '../tus/drain.ts';
import { sendError } from './error-handler.ts';

/** What every route that takes a document can answer, beside what every POST can. */
export const documentProblems = ['validation_failed'] as const satisfies readonly ErrorCode[];

/** Registers routes whose body is a JSON document of any length: nobody parses it here, it flows on to export. */
export function documentRoutes(app: App, add: (routes: App) => void): void {
  void app.register(async (routes: App) => {
    routes.removeAllContentTypeParsers();
    routes.addContentTypeParser('application/json', (_request, _payload, done) => done(null));
    routes.setErrorHandler(async (error, request, reply) => {
      if (!(await drain(request.raw))) void reply.header('connection', 'close');
      sendError(error, request, reply);
      return reply;
    });
    add(routes);
  });
}

/** The body as the client sends it, and whether it is compressed. Throws `unsupported_media_type` for another coding. */
export function documentRequest(request: FastifyRequest): { body: Readable; gzip: boolean } {
  const coding = request.headers['content-encoding']?.trim().toLowerCase() ?? 'identity';
  if (coding !== 'gzip' && coding !== 'identity')
    throw new AppError('unsupported_media_type', 'Send the document plain or with Content-Encoding: gzip.');
  // The answer may take minutes, in which nothing is said; until then a client that sends nothing is cut off.
  const { socket } = request.raw;
  request.raw.once('end', () => socket.setTimeout(0));
  return { body: request.raw, gzip: coding === 'gzip' };
}
