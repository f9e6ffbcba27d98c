import { create } from '@bufbuild/protobuf';
import type { DescMessage, DescService } from '@bufbuild/protobuf';
import type { ByteEndpoint, Downloader, DownloadOperation, Uploader, UploadOperation } from '../bytes/operations.ts';
import { toAppError } from '../errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { noteIds } from '../runtime/spans.ts';
import type { Client, Endpoint } from './contract.ts';
import { localClient } from './local-client.ts';
import { publicError } from './public-error.ts';

/** The six services, as settings, packages and probes name them. */
export const serviceNames = ['gateway', 'catalog', 'upload', 'backend-registry', 'placement', 'export'] as const;
export type ServiceName = (typeof serviceNames)[number];

/** How a service reaches the others. Nothing but the composition root knows which of the two kinds it has. */
export interface Connections {
  client<S extends DescService>(descriptor: S, of?: ServiceName): Client<S>;
  uploader<I extends DescMessage, O extends DescMessage>(operation: UploadOperation<I, O>): Uploader<I, O>;
  downloader<I extends DescMessage>(operation: DownloadOperation<I>): Downloader<I>;
  close(): Promise<void>;
}

/** `stowage.backend_registry.v1.BlobService` is served by `backend-registry`. */
export function serviceOf(descriptor: DescService): ServiceName {
  const segment = descriptor.typeName.split('.')[1]?.replace('_', '-');
  const name = serviceNames.find((candidate) => candidate === segment);
  if (!name) throw new Error(`${descriptor.typeName} belongs to no service`);
  return name;
}

/** Connections within one process: no socket between services. */
export class LocalConnections implements Connections {
  readonly #endpoints = new Map<string, Endpoint>();
  readonly #byteEndpoints = new Map<string, ByteEndpoint>();
  readonly #logger: Logger;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  /** Makes what one service serves known to the others. */
  add(service: ServiceName, endpoints: readonly Endpoint[], byteEndpoints: readonly ByteEndpoint[]): void {
    for (const endpoint of endpoints) this.#endpoints.set(`${service}/${endpoint.descriptor.typeName}`, endpoint);
    for (const endpoint of byteEndpoints) this.#byteEndpoints.set(endpoint.operation.path, endpoint);
  }

  client<S extends DescService>(descriptor: S, of: ServiceName = serviceOf(descriptor)): Client<S> {
    const find = (wanted: DescService): Endpoint => {
      const endpoint = this.#endpoints.get(`${of}/${wanted.typeName}`);
      if (!endpoint) throw new Error(`${of} does not serve ${wanted.typeName}`);
      return endpoint;
    };
    return localClient(descriptor, find, this.#logger);
  }

  uploader<I extends DescMessage, O extends DescMessage>(operation: UploadOperation<I, O>): Uploader<I, O> {
    return async (request, body, context) => {
      const endpoint = this.#byteEndpoints.get(operation.path);
      if (endpoint?.kind !== 'upload') throw new Error(`nobody serves ${operation.path}`);
      try {
        const message = create(operation.input, request);
        noteIds(message);
        // The endpoint made its answer with `create(operation.output, …)`.
        return (await endpoint.run(message, body, context)) as never;
      } catch (error) {
        throw this.#shown(error, context.requestId, operation.path);
      }
    };
  }

  downloader<I extends DescMessage>(operation: DownloadOperation<I>): Downloader<I> {
    return async (request, context) => {
      const endpoint = this.#byteEndpoints.get(operation.path);
      if (endpoint?.kind !== 'download') throw new Error(`nobody serves ${operation.path}`);
      try {
        const message = create(operation.input, request);
        noteIds(message);
        return await endpoint.run(message, context);
      } catch (error) {
        throw this.#shown(error, context.requestId, operation.path);
      }
    };
  }

  async close(): Promise<void> {
    this.#endpoints.clear();
    this.#byteEndpoints.clear();
  }

  #shown(error: unknown, requestId: string, path: string): Error {
    return publicError(toAppError(error), { logger: this.#logger, requestId, name: `bytes/${path}` });
  }
}
