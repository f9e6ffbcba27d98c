import { fromBinary, toBinary } from '@bufbuild/protobuf';
import { context as otelContext, propagation, SpanKind, trace } from '@opentelemetry/api';
import { createServer } from 'node:http';
import type { IncomingMessage, RequestListener, Server, ServerResponse } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import type { Server as SecureServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { pipeline } from 'node:stream/promises';
import { TLSSocket } from 'node:tls';
import { AppError, errorTable, toAppError } from '../errors.ts';
import { contextFromHeaders } from '../rpc/context.ts';
import type { CallContext } from '../rpc/context.ts';
import { publicError } from '../rpc/public-error.ts';
import type { ServiceName } from '../rpc/connections.ts';
import { closeHttpServer } from '../runtime/close-http-server.ts';
import { failSpan, noteIds } from '../runtime/spans.ts';
import type { Logger } from '../runtime/logger.ts';
import { admitted } from '../tls/admission.ts';
import { byteCallersOf } from '../tls/callers.ts';
import { handshakeMs } from '../tls/grpc-credentials.ts';
import type { TlsIdentity } from '../tls/identity.ts';
import type { ByteEndpoint } from './operations.ts';

/** Carries the request message of a byte operation, base64url. */
export const requestHeader = 'stowage-request';

const socketBufferBytes = 1024 * 1024;
/** How long the rest of a refused body may take. */
const refusedBodyMs = 5_000;
/** How long the head of a request may take: only bodies may take days. */
const headersTimeout = 10_000;
const serverOptions = {
  highWaterMark: socketBufferBytes,
  requestTimeout: 0,
  headersTimeout,
  // A request message is in one: as long as the gateway takes headers from clients, in base64.
  maxHeaderSize: 65_536,
  connectionsCheckingInterval: 5_000,
  keepAliveTimeout: 65_000,
};

/**
 * The byte port: streams of content between services over HTTP. With an identity it speaks TLS, and only to callers that
 * may use the operation.
 */
export class ByteServer {
  readonly #server: Server | SecureServer;
  readonly #endpoints: Map<string, ByteEndpoint>;
  readonly #logger: Logger;
  readonly #isDraining: () => boolean;
  readonly #tls: TlsIdentity | null;
  /** Who is at the other end of each connection, and by which of our certificates it was opened. */
  readonly #peers = new WeakMap<TLSSocket, { caller: ServiceName | null; certificate: number }>();
  #certificate = 0;

  /** While `isDraining`, callers are told to come by new connections, which lead elsewhere. */
  constructor(
    endpoints: readonly ByteEndpoint[],
    logger: Logger,
    { isDraining = () => false, tls = null }: { isDraining?: () => boolean; tls?: TlsIdentity | null } = {},
  ) {
    this.#endpoints = new Map(endpoints.map((endpoint) => [`/${endpoint.operation.path}`, endpoint]));
    this.#logger = logger;
    this.#isDraining = isDraining;
    this.#tls = tls;
    const listener: RequestListener = (request, response) => void this.#handle(request, response);
    this.#server = tls ? this.#secureServer(tls, listener) : createServer(serverOptions, listener);
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
    const known = this.#endpoints.has(request.url ?? '');
    const name = `bytes${known ? request.url : ''}`;
    await trace.getTracer('stowage').startActiveSpan(name, { kind: SpanKind.SERVER }, caller, async (span) => {
      await this.#answer(request, response);
      span.end();
    });
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const abort = new AbortController();
    response.on('close', () => abort.abort());
    const header = (name: string): string | undefined => request.headers[name]?.toString();
    const context = this.#admitted(request, contextFromHeaders(header, abort.signal));
    if (!context) {
      request.on('error', () => undefined);
      response.writeHead(403, { connection: 'close', 'content-type': 'application/json' }).end('{}');
      return;
    }
    try {
      await this.#run(request, response, context);
    } catch (error) {
      this.#refuse(request, response, error, context);
    }
  }

  /** Speaks to holders of our certificates alone. */
  #secureServer(tls: TlsIdentity, listener: RequestListener): SecureServer {
    const peers = { requestCert: true, rejectUnauthorized: true, handshakeTimeout: handshakeMs };
    const server = createSecureServer({ ...serverOptions, ...peers, ...tls.context }, listener);
    server.on('secureConnection', (socket) => {
      const caller = tls.serviceOf(socket.getPeerCertificate());
      this.#peers.set(socket, { caller, certificate: this.#certificate });
    });
    server.on('tlsClientError', (error: NodeJS.ErrnoException) => {
      this.#logger.debug({ reason: error.code ?? error.message }, 'A connection to the byte port was refused.');
    });
    tls.onChange(() => {
      this.#certificate += 1;
      server.setSecureContext(tls.context);
    });
    return server;
  }

  #admitted(request: IncomingMessage, context: CallContext): CallContext | null {
    if (!this.#tls) return context;
    const path = (request.url ?? '').slice(1);
    const caller = this.#peerOf(request)?.caller ?? null;
    const admittedContext = admitted({ path, callers: byteCallersOf(path), caller }, context);
    if (!admittedContext) {
      const call = this.#endpoints.has(`/${path}`) ? path : 'unknown';
      this.#logger.warn({ call, caller }, 'Bytes were refused: they are not this caller’s.');
    }
    return admittedContext;
  }

  #peerOf({ socket }: IncomingMessage): { caller: ServiceName | null; certificate: number } | undefined {
    return socket instanceof TLSSocket ? this.#peers.get(socket) : undefined;
  }

  /** The head of an answer. The last one on a connection whose certificate was replaced since. */
  #begin(request: IncomingMessage, response: ServerResponse, type: string): void {
    const isOld = (this.#peerOf(request)?.certificate ?? this.#certificate) !== this.#certificate;
    // A body of which something is still to come would be cut off.
    const isLast = this.#isDraining() && request.complete;
    response.writeHead(200, { 'content-type': type, ...(isOld || isLast ? { connection: 'close' } : {}) });
  }

  async #run(request: IncomingMessage, response: ServerResponse, context: CallContext): Promise<void> {
    const endpoint = this.#endpoints.get(request.url ?? '');
    if (!endpoint) throw new AppError('not_found', 'There is no such byte operation.');
    const packed = Buffer.from(request.headers[requestHeader]?.toString() ?? '', 'base64url');
    const message = fromBinary(endpoint.operation.input, packed);
    noteIds(message);
    if (endpoint.kind === 'upload') {
      const result = await endpoint.run(message, request, context);
      this.#begin(request, response, 'application/x-protobuf');
      response.end(toBinary(endpoint.operation.output, result));
      return;
    }
    const bytes = await endpoint.run(message, context);
    if (response.destroyed) {
      // Nobody listens to it any more: what breaks it now must not bring the process down.
      bytes.on('error', () => undefined).destroy();
      return;
    }
    this.#begin(request, response, 'application/octet-stream');
    await pipeline(bytes, response);
  }

  #refuse(request: IncomingMessage, response: ServerResponse, thrown: unknown, context: CallContext): void {
    const name = `bytes${request.url ?? ''}`;
    const error = publicError(toAppError(thrown), { logger: this.#logger, requestId: context.requestId, name });
    failSpan(error.code);
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
