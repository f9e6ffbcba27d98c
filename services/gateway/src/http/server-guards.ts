import { AppError } from '@stowage/common/errors';
import { newId } from '@stowage/common/ids';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { STATUS_CODES } from 'node:http';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { GatewaySettings } from '../settings.ts';
import { problemOf } from './problem.ts';

declare module 'fastify' {
  interface FastifyInstance {
    /** Whether the answer to a request is the last one on its connection. */
    isGoingAway(request: FastifyRequest): boolean;
  }
}

const requestIdPattern = /^[A-Za-z0-9._-]{1,128}$/;

/** The client's X-Request-Id where it is well-formed, else a new one. */
export function requestIdOf(request: { headers: Record<string, string | string[] | undefined> }): string {
  const given = request.headers['x-request-id'];
  return typeof given === 'string' && requestIdPattern.test(given) ? given : newId();
}

/** Whether an address belongs to the upload protocol. */
export function isTus(url: string): boolean {
  return /^\/files(\/|\?|$)/.test(url);
}

/** Headers of every answer; content routes set their own beside them. */
export function addCommonHeaders(app: FastifyInstance, publicUrl: string | null): void {
  const overTls = publicUrl?.startsWith('https://') ?? false;
  app.addHook('onRequest', async (request, reply) => {
    setCommonHeaders(request, reply);
    if (overTls) void reply.header('strict-transport-security', 'max-age=31536000');
  });
}

/** While the process drains its clients are told to come by new connections, which lead to another one. */
export function addGoingAway(app: FastifyInstance, isDraining: () => boolean): void {
  // A body of which something is still to come would be cut off.
  app.decorate('isGoingAway', (request: FastifyRequest) => isDraining() && request.raw.complete);
  app.addHook('onSend', async (request, reply) => {
    if (app.isGoingAway(request)) void reply.header('connection', 'close');
  });
}

/** Refuses a request without Host, or with two: another server could take another one of them (RFC 9112 §3.2). */
export function addHostGuard(app: FastifyInstance): void {
  app.addHook('onRequest', async (request, reply) => {
    const hosts = request.raw.headersDistinct['host']?.length ?? 0;
    if (hosts === 1 || (hosts === 0 && request.raw.httpVersion === '1.0')) return;
    void reply.header('connection', 'close');
    throw new AppError('validation_failed', 'A request has exactly one Host header.');
  });
}

/** What runs nowhere: for all that is no page and no file. */
export const strictPolicy = "default-src 'none'; frame-ancestors 'none'";

/** The same for an answer to a request that no hook saw, because its address can't be read. */
export function setCommonHeaders(request: FastifyRequest, reply: FastifyReply): void {
  void reply.headers({
    'x-request-id': request.id,
    'cache-control': 'private, no-store',
    'x-content-type-options': 'nosniff',
    'x-frame-options': 'DENY',
    'referrer-policy': 'no-referrer',
    'content-security-policy': strictPolicy,
  });
  if (isTus(request.url)) void reply.header('tus-resumable', '1.0.0');
}

/** Tells handlers when the client is gone. */
export function addClientWatch(app: FastifyInstance): void {
  app.addHook('onRequest', async (request, reply) => {
    const gone = new AbortController();
    request.gone = gone;
    reply.raw.once('close', () => {
      if (!reply.raw.writableFinished) gone.abort();
    });
  });
}

/** Says "100 Continue" only to requests that authorisation let through; uploads say it themselves, by `wantBody`. */
export function addContinue(app: FastifyInstance): void {
  app.addHook('preParsing', async (request, reply) => {
    if (!isTus(request.url)) wantBody(request, reply);
  });
}

const wanted = new WeakSet<IncomingMessage>();

/** Lets the client send its body where it waits for "100 Continue". */
export function wantBody(request: FastifyRequest, reply: FastifyReply): void {
  if (!expectsContinue(request.raw) || wanted.has(request.raw)) return;
  wanted.add(request.raw);
  reply.raw.writeContinue();
}

/** Whether the client still holds its body back. */
export function holdsBodyBack(request: IncomingMessage): boolean {
  return expectsContinue(request) && !wanted.has(request);
}

function expectsContinue(request: IncomingMessage): boolean {
  return request.headers.expect?.toLowerCase() === '100-continue';
}

/** Ends JSON requests whose body takes too long, and content that stands still. */
export function addTimeouts(
  app: FastifyInstance,
  settings: Pick<GatewaySettings, 'jsonTimeoutMs' | 'idleTimeoutMs'>,
): void {
  const timers = new WeakMap<FastifyRequest, NodeJS.Timeout>();
  const clear = async (request: FastifyRequest): Promise<void> => clearTimeout(timers.get(request));
  app.addHook('onRequest', async (request, reply) => {
    // Node destroys a socket that nobody else's listener takes care of.
    request.raw.socket.setTimeout(settings.idleTimeoutMs);
    if (isTus(request.url)) return;
    timers.set(
      request,
      setTimeout(() => endLate(request, reply), settings.jsonTimeoutMs),
    );
  });
  app.addHook('preValidation', clear);
  app.addHook('preHandler', async (request) => {
    if (request.routeOptions.config.waits) request.raw.socket.setTimeout(0);
  });
  app.addHook('onResponse', clear);
  app.addHook('onRequestAbort', clear);
}

function endLate(request: FastifyRequest, reply: FastifyReply): void {
  if (!reply.sent)
    answerRaw(request.raw.socket, new AppError('request_timeout', 'The body took too long to arrive.'), request.id);
}

/** Answers what Node could not even parse as HTTP, with a problem document and a closed connection. */
export function onClientError(error: NodeJS.ErrnoException, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  answerRaw(socket, parserError(error.code), newId());
}

function parserError(code: string | undefined): AppError {
  if (code === 'HPE_HEADER_OVERFLOW') return new AppError('headers_too_large', 'The request headers are too large.');
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT')
    return new AppError('request_timeout', 'The request took too long to arrive.');
  return new AppError('validation_failed', 'This is not a well-formed HTTP request.');
}

function answerRaw(socket: Socket, error: AppError, requestId: string): void {
  const problem = problemOf(error, requestId);
  const body = JSON.stringify(problem);
  const head = [
    `HTTP/1.1 ${problem.status} ${STATUS_CODES[problem.status] ?? ''}`,
    'Content-Type: application/problem+json',
    'Cache-Control: private, no-store',
    'X-Content-Type-Options: nosniff',
    `Content-Security-Policy: ${strictPolicy}`,
    `Content-Length: ${Buffer.byteLength(body)}`,
    `X-Request-Id: ${requestId}`,
    'Connection: close',
  ];
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`);
}
