import { fromBinary, toBinary } from '@bufbuild/protobuf';
import type { DescMessage, DescMethod, Message } from '@bufbuild/protobuf';
import { Server, ServerCredentials } from '@grpc/grpc-js';
import type { handleUnaryCall, MethodDefinition, UntypedServiceImplementation } from '@grpc/grpc-js';
import { toAppError } from '../errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { contextFromHeaders } from './context.ts';
import type { Endpoint } from './contract.ts';
import { publicError } from './public-error.ts';
import { toServiceError } from './wire-error.ts';

/** A chunk-checksum list of a 1 TiB blob is 4 MiB; nothing else comes near. */
export const maxMessageBytes = 8 * 1024 * 1024;

/** How a generated method looks on the wire; the same for server and client. */
export function methodDefinition(method: DescMethod): MethodDefinition<Message, Message> {
  return {
    path: `/${method.parent.typeName}/${method.name}`,
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

/** A gRPC server for endpoints of one process. */
export class GrpcServer {
  readonly #server = new Server({
    'grpc.max_receive_message_length': maxMessageBytes,
    'grpc.max_send_message_length': maxMessageBytes,
    // So that callers hear of new processes of this service. Calls under way end as they would have.
    'grpc.max_connection_age_ms': 30_000,
  });
  readonly #logger: Logger;

  constructor(endpoints: readonly Endpoint[], logger: Logger) {
    this.#logger = logger;
    for (const endpoint of endpoints) this.#add(endpoint);
  }

  /** Listens on `host:port`; gives the port (of use where 0 was asked for). */
  listen(host: string, port: number): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#server.bindAsync(`${host}:${port}`, ServerCredentials.createInsecure(), (error, bound) =>
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
      const context = contextFromHeaders(header, abort.signal);
      endpoint.call(method, call.request, context).then(
        (response) => callback(null, response),
        (error: unknown) => {
          const name = `${endpoint.descriptor.typeName}/${method.name}`;
          const shown = publicError(toAppError(error), { logger: this.#logger, requestId: context.requestId, name });
          callback(toServiceError(shown));
        },
      );
    };
  }
}
