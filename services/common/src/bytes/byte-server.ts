import { fromBinary, toBinary } from '@bufbuild/protobuf';
import { context as otelContext, propagation, SpanKind, trace } from '@opentelemetry/api';
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { pipeline } from 'node:stream/promises';
import { AppError, errorTable, toAppError } from '../errors.ts';
import { contextFromHeaders } from '../rpc/context.ts';
import type { CallContext } from '../rpc/context.ts';
import { publicError } from '../rpc/public-error.ts';
import { closeHttpServer } from '../runtime/close-http-server.ts';
import type { Logger } from '../runtime/logger.ts';
import type { ByteEndpoint } from './operations.ts';

/** Carries the request message of a byte operation, base64url. */
export const requestHeader = 'stowage-request';

const socketBufferBytes = 1024 * 1024;
/** How long the rest of a refused body may take. */
const refusedBodyMs = 5_000;

/** The byte port: streams of content between services over plain HTTP. */
export class ByteServer {
  readonly #server: Server;
  readonly #endpoints: Map<string, ByteEndpoint>;
  readonly #logger: Logger;
  readonly #isDraining: () => boolean;

  /** While `isDraining`, callers are told to come by new connections, which lead elsewhere. */
  constructor(endpoints: readonly ByteEndpoint[], logger: Logger, isDraining: () => boolean = () => false) {
    this.#endpoints = new Map(endpoints.map((endpoint) => [`/${endpoint.operation.path}`, endpoint]));
    this.#logger = logger;
    this.#isDraining = isDraining;
    this.#server = createServer({ highWaterMark: socketBufferBytes, requestTimeout: 0 }, (request, response) => {
      void this.#handle(request, response);
    });
    this.#server.keepAliveTimeout = 65_000;
  }

  /** Listens on `host:port`; gives the port. */
  async listen(host: string, port: number): Promise<number> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#server.once('error', reject);
    this.#server.listen(port, host, resolve);
    await promise;
    this.#server.off('error', reject);
    return (this.#server.address() as AddressInfo).port;
  }

  /** Takes no new requests, waits up to `graceMs` for those under way. */
  async close(graceMs: number): Promise<void> {
    await closeHttpServer(this.#server, graceMs);
  }

  /** With a span of its own within the caller's trace. */
  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const caller = propagation.extract(otelContext.active(), request.headers);
    const name = `bytes${request.url ?? ''}`;
    await trace.getTracer('stowage').startActiveSpan(name, { kind: SpanKind.SERVER }, caller, async (span) => {
      await this.#answer(request, response);
      span.end();
    });
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const abort = new AbortController();
    response.on('close', () => abort.abort());
    const header = (name: string): string | undefined => request.headers[name]?.toString();
    const context = contextFromHeaders(header, abort.signal);
    try {
      await this.#run(request, response, context);
    } catch (error) {
      this.#refuse(request, response, error, context);
    }
  }

  async #run(request: IncomingMessage, response: ServerResponse, context: CallContext): Promise<void> {
    const endpoint = this.#endpoints.get(request.url ?? '');
    if (!endpoint) throw new AppError('not_found', 'There is no such byte operation.');
    const packed = Buffer.from(request.headers[requestHeader]?.toString() ?? '', 'base64url');
    const message = fromBinary(endpoint.operation.input, packed);
    if (endpoint.kind === 'upload') {
      const result = await endpoint.run(message, request, context);
      this.#writeHead(request, response, 'application/x-protobuf');
      response.end(toBinary(endpoint.operation.output, result));
      return;
    }
    const bytes = await endpoint.run(message, context);
    if (response.destroyed) {
      // Nobody listens to it any more: what breaks it now must not bring the process down.
      bytes.on('error', () => undefined).destroy();
      return;
    }
    this.#writeHead(request, response, 'application/octet-stream');
    await pipeline(bytes, response);
  }

  #writeHead(request: IncomingMessage, response: ServerResponse, type: string): void {
    // A body of which something is still to come would be cut off.
    const last = this.#isDraining() && request.complete;
    response.writeHead(200, { 'content-type': type, ...(last ? { connection: 'close' } : {}) });
  }

  #refuse(request: IncomingMessage, response: ServerResponse, thrown: unknown, context: CallContext): void {
    const name = `bytes${request.url ?? ''}`;
    const error = publicError(toAppError(thrown), { logger: this.#logger, requestId: context.requestId, name });
    if (response.headersSent || response.destroyed) {
      response.destroy();
      return;
    }
    // Without "Connection: close": Node would cut the socket while the caller still sends, who then sees a broken
    // connection instead of this answer. What is left of the body is read and dropped, for a while.
    const { http } = errorTable[error.code];
    response.writeHead(http === 460 ? 422 : http, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ code: error.code, detail: error.detail, members: error.members }));
    const late = setTimeout(() => request.destroy(), refusedBodyMs).unref();
    request.once('close', () => clearTimeout(late)).on('error', () => undefined);
    // A listener, as resume() alone does nothing while somebody still waits for the stream to be readable.
    request.on('data', () => undefined).resume();
  }
}
