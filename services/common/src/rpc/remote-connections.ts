import type { DescMessage, DescService } from '@bufbuild/protobuf';
import type { Client as Channel } from '@grpc/grpc-js';
import { ByteClient } from '../bytes/byte-client.ts';
import type { ByteService, Downloader, DownloadOperation, Uploader, UploadOperation } from '../bytes/operations.ts';
import { serviceOf } from './connections.ts';
import type { Connections, ServiceName } from './connections.ts';
import type { Client } from './contract.ts';
import { grpcClient, openChannel } from './grpc-client.ts';

/** Where one service listens: gRPC as `host:port`, bytes as an HTTP origin. */
export interface Address {
  rpc: string;
  bytes: string | null;
}

/** Connections over gRPC and the byte port. */
export class RemoteConnections implements Connections {
  readonly #addresses: Partial<Record<ServiceName, Address>>;
  readonly #channels = new Map<string, Channel>();
  readonly #byteClients = new Map<ByteService, ByteClient>();

  constructor(addresses: Partial<Record<ServiceName, Address>>) {
    this.#addresses = addresses;
  }

  client<S extends DescService>(descriptor: S, of: ServiceName = serviceOf(descriptor)): Client<S> {
    const key = `${of}/${descriptor.typeName}`;
    const channel = this.#channels.get(key) ?? openChannel(this.#address(of).rpc, [descriptor]);
    this.#channels.set(key, channel);
    return grpcClient(descriptor, channel);
  }

  uploader<I extends DescMessage, O extends DescMessage>(operation: UploadOperation<I, O>): Uploader<I, O> {
    return this.#byteClient(operation.service).uploader(operation);
  }

  downloader<I extends DescMessage>(operation: DownloadOperation<I>): Downloader<I> {
    return this.#byteClient(operation.service).downloader(operation);
  }

  async close(): Promise<void> {
    for (const channel of this.#channels.values()) channel.close();
    await Promise.all([...this.#byteClients.values()].map((client) => client.close()));
  }

  #byteClient(service: ByteService): ByteClient {
    const origin = this.#address(service).bytes;
    if (origin === null) throw new Error(`${service} has no byte port in the settings`);
    const client = this.#byteClients.get(service) ?? new ByteClient(origin);
    this.#byteClients.set(service, client);
    return client;
  }

  #address(service: ServiceName): Address {
    const address = this.#addresses[service];
    if (!address) throw new Error(`the settings name no address of ${service}`);
    return address;
  }
}
