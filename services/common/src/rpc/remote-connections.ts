import type { DescMessage, DescService } from '@bufbuild/protobuf';
import { ByteClient } from '../bytes/byte-client.ts';
import type { ByteService, Downloader, DownloadOperation, Uploader, UploadOperation } from '../bytes/operations.ts';
import { StartupError } from '../runtime/run-process.ts';
import type { ChannelIdentity } from '../tls/channel-identity.ts';
import { PeerChannelCredentials } from '../tls/grpc-credentials.ts';
import { peerConnector } from '../tls/peer-connector.ts';
import type { TlsIdentity } from '../tls/identity.ts';
import { serviceOf } from './connections.ts';
import type { Connections, ServiceName } from './connections.ts';
import type { Client } from './contract.ts';
import { grpcClient, openChannel } from './grpc-client.ts';
import { ServiceChannel } from './service-channel.ts';

/** Where one service listens: gRPC as `host:port`, bytes as an HTTP origin. */
export interface Address {
  rpc: string;
  bytes: string | null;
}

/** One channel for all that a service serves: after a restart all of it is back at the same moment. */
interface Target {
  descriptors: DescService[];
  channel: ServiceChannel;
}

/** Connections over gRPC and the byte port. */
export class RemoteConnections implements Connections {
  readonly #addresses: Partial<Record<ServiceName, Address>>;
  readonly #targets = new Map<ServiceName, Target>();
  readonly #byteClients = new Map<ByteService, ByteClient>();
  readonly #tls: TlsIdentity | null;

  constructor(addresses: Partial<Record<ServiceName, Address>>, tls: TlsIdentity | null = null) {
    this.#addresses = addresses;
    this.#tls = tls;
  }

  client<S extends DescService>(descriptor: S, of: ServiceName = serviceOf(descriptor)): Client<S> {
    const target = this.#target(of);
    if (!target.descriptors.includes(descriptor)) target.descriptors.push(descriptor);
    return grpcClient(descriptor, target.channel);
  }

  uploader<I extends DescMessage, O extends DescMessage>(operation: UploadOperation<I, O>): Uploader<I, O> {
    return this.#byteClient(operation.service).uploader(operation);
  }

  downloader<I extends DescMessage>(operation: DownloadOperation<I>): Downloader<I> {
    return this.#byteClient(operation.service).downloader(operation);
  }

  async close(): Promise<void> {
    for (const { channel } of this.#targets.values()) channel.close();
    await Promise.all([...this.#byteClients.values()].map((client) => client.close()));
  }

  #target(of: ServiceName): Target {
    const known = this.#targets.get(of);
    if (known) return known;
    const descriptors: DescService[] = [];
    const identity = this.#identityFor(of);
    const peer = identity && new PeerChannelCredentials(identity);
    // Opened by the first call: by then all clients are made, so the channel knows which of their calls it may retry.
    const open = (target: string): ReturnType<typeof openChannel> => openChannel(target, descriptors, peer);
    const made = { descriptors, channel: new ServiceChannel(this.#address(of).rpc, open) };
    this.#targets.set(of, made);
    return made;
  }

  #identityFor(service: ServiceName): ChannelIdentity | null {
    return this.#tls && { tls: this.#tls, service };
  }

  #byteClient(service: ByteService): ByteClient {
    const origin = this.#address(service).bytes;
    if (origin === null) throw new Error(`${service} has no byte port in the settings`);
    requireScheme(service, origin, this.#tls ? 'https:' : 'http:');
    const known = this.#byteClients.get(service);
    if (known) return known;
    const identity = this.#identityFor(service);
    const client = new ByteClient(origin, identity ? { connect: peerConnector(identity) } : {});
    this.#byteClients.set(service, client);
    return client;
  }

  #address(service: ServiceName): Address {
    const address = this.#addresses[service];
    if (!address) throw new Error(`the settings name no address of ${service}`);
    return address;
  }
}

function requireScheme(service: ServiceName, origins: string, scheme: 'http:' | 'https:'): void {
  if (origins.split(',').every((origin) => origin.trim().startsWith(`${scheme}//`))) return;
  const when = scheme === 'https:' ? 'with' : 'without';
  throw new StartupError(
    `The address of the byte port of ${service} has to begin with ${scheme}//, ${when} STOWAGE_TLS_CERT: it is ${origins}.`,
  );
}
