import { fromBinary, toBinary } from '@bufbuild/protobuf';
import type { DescMessage, DescMethod, Message } from '@bufbuild/protobuf';
import { Server, ServerCredentials, status } from '@grpc/grpc-js';
import type { handleUnaryCall, MethodDefinition, ServerUnaryCall, UntypedServiceImplementation } from '@grpc/grpc-js';
import { toAppError } from '../errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { noteIds } from '../runtime/spans.ts';
import { admitted } from '../tls/admission.ts';
import { rpcCallersOf } from '../tls/callers.ts';
import { PeerServerCredentials } from '../tls/grpc-credentials.ts';
import type { TlsIdentity } from '../tls/identity.ts';
import { contextFromHeaders } from './context.ts';
import type { CallContext } from './context.ts';
import { defaultTimeoutMs, pathOf } from './contract.ts';
import type { Endpoint } from './contract.ts';
import { withDeadline } from './deadline.ts';
import { publicError } from './public-error.ts';
import { toServiceError } from './wire-error.ts';

/** A chunk-checksum list of a 1 TiB blob is 4 MiB; nothing else comes near. */
export const maxMessageBytes = 8 * 1024 * 1024;

/** How a generated method looks on the wire; the same for server and client. */
export function methodDefinition(method: DescMethod): MethodDefinition<Message, Message> {
  return {
    path: pathOf(method),
    requestStream: false,
    responseStream: false,
    requestSerialize: serializer(method.input),
    requestDeserialize: (bytes) => fromBinary(method.input, bytes),
    responseSerialize: serializer(method.output),
    responseDeserialize: (bytes) => fromBinary(method.output, bytes),
  };
}

function serializer(schema: DescMessage): (message: Message) => Buffer {
  return (message) => {
    const bytes = toBinary(schema, message);
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  };
}

/** Calls of one connection that are worked on at a time; its others wait at the caller. */
const maxConcurrentStreams = 1_000;

/** A gRPC server for endpoints of one process; with an identity, only for callers that may make the call. */
export class GrpcServer {
  readonly #server = new Server({
    'grpc.max_receive_message_length': maxMessageBytes,
    'grpc.max_send_message_length': maxMessageBytes,
    'grpc.max_concurrent_streams': maxConcurrentStreams,
    // A caller that the network lost would else keep its connection for ever.
    'grpc.keepalive_time_ms': 30_000,
    'grpc.keepalive_timeout_ms': 10_000,
  });
  readonly #logger: Logger;
  readonly #tls: TlsIdentity | null;

  constructor(endpoints: readonly Endpoint[], logger: Logger, tls: TlsIdentity | null = null) {
    this.#logger = logger;
    this.#tls = tls;
    for (const endpoint of endpoints) this.#add(endpoint);
  }

  /** Listens on `host:port`; gives the port (of use where 0 was asked for). */
  listen(host: string, port: number): Promise<number> {
    const credentials = this.#tls ? new PeerServerCredentials(this.#tls) : ServerCredentials.createInsecure();
    return new Promise((resolve, reject) => {
      this.#server.bindAsync(`${host}:${port}`, credentials, (error, bound) =>
        error ? reject(error) : resolve(bound),
      );
    });
  }

  /** Takes no new calls, waits up to `graceMs` for those under way. */
  async close(graceMs: number): Promise<void> {
    const timer = setTimeout(() => this.#server.forceShutdown(), graceMs);
    await new Promise<void>((resolve) => this.#server.tryShutdown(() => resolve()));
    clearTimeout(timer);
  }

  #add(endpoint: Endpoint): void {
    const definition: Record<string, MethodDefinition<Message, Message>> = {};
    const handlers: UntypedServiceImplementation = {};
    for (const method of endpoint.descriptor.methods) {
      definition[method.localName] = methodDefinition(method);
      handlers[method.localName] = this.#handler(endpoint, method);
    }
    this.#server.addService(definition, handlers);
  }

  #handler(endpoint: Endpoint, method: DescMethod): handleUnaryCall<Message, Message> {
    return (call, callback) => {
      const abort = new AbortController();
      call.on('cancelled', () => abort.abort());
      const header = (name: string): string | undefined => call.metadata.get(name)[0]?.toString();
      const context = this.#admitted(call, pathOf(method), contextFromHeaders(header, abort.signal));
      if (!context) {
        callback({ code: status.PERMISSION_DENIED, details: 'This caller may not make this call.' });
        return;
      }
      noteIds(call.request);
      const name = `${endpoint.descriptor.typeName}/${method.name}`;
      const run = (inner: CallContext): Promise<Message> => endpoint.call(method, call.request, inner);
      // gRPC itself ends a call whose caller set a deadline.
      const answer = hasDeadline(call) ? run(context) : withDeadline(context, defaultTimeoutMs, name, run);
      answer.then(
        (response) => callback(null, response),
        (error: unknown) => {
          const shown = publicError(toAppError(error), { logger: this.#logger, requestId: context.requestId, name });
          callback(toServiceError(shown));
        },
      );
    };
  }

  #admitted(call: Call, path: string, context: CallContext): CallContext | null {
    if (!this.#tls) return context;
    const { sslPeerCertificate: certificate } = call.getAuthContext();
    const caller = certificate ? this.#tls.serviceOf(certificate) : null;
    const admittedContext = admitted({ path, callers: rpcCallersOf(path), caller }, context);
    if (!admittedContext)
      this.#logger.warn({ call: path, caller }, 'A call was refused: it is not this caller’s to make.');
    return admittedContext;
  }
}

type Call = ServerUnaryCall<Message, Message>;

function hasDeadline(call: Call): boolean {
  const deadline = call.getDeadline();
  return deadline instanceof Date || Number.isFinite(deadline);
}
