import { createSecureContext } from 'node:tls';
import { ChannelCredentials, ServerCredentials } from '@grpc/grpc-js';
import type { ChannelIdentity } from './channel-identity.ts';
import type { TlsIdentity } from './identity.ts';

/** How long a handshake may take. */
export const handshakeMs = 10_000;

/** What a gRPC server asks of its callers: a certificate of our authority, over TLS 1.3. Follows changes of the files. */
export class PeerServerCredentials extends ServerCredentials {
  constructor(identity: TlsIdentity) {
    const always = { requestCert: true, rejectUnauthorized: true, handshakeTimeout: handshakeMs };
    super({ ...always, ...identity.context }, identity.context);
    identity.onChange(() => this.updateSecureContextOptions(identity.context));
  }

  _equals(other: ServerCredentials): boolean {
    return this === other;
  }
}

type ConnectorArguments = Parameters<ChannelCredentials['_createSecureConnector']>;
type Connector = ReturnType<ChannelCredentials['_createSecureConnector']>;

/**
 * What a gRPC client shows, and asks of whoever answers. Each new connection is by the files as they are then. One for all
 * channels to a service: it follows the files for as long as the process lives.
 */
export class PeerChannelCredentials extends ChannelCredentials {
  /** The name in the certificate of whoever answers. */
  readonly serverName: string;
  readonly #check: NonNullable<Parameters<typeof ChannelCredentials.createFromSecureContext>[1]>;
  readonly #tls: TlsIdentity;
  #current: ChannelCredentials;

  constructor({ tls, service }: ChannelIdentity) {
    super();
    this.serverName = tls.nameOf(service);
    this.#tls = tls;
    this.#check = { checkServerIdentity: (_host, certificate) => tls.wrongServer(service, certificate) };
    this.#current = this.#make();
    tls.onChange(() => {
      this.#current = this.#make();
    });
  }

  _isSecure(): boolean {
    return true;
  }

  _equals(other: ChannelCredentials): boolean {
    return this === other;
  }

  _createSecureConnector(...[target, options, credentials]: ConnectorArguments): Connector {
    const connector = (): Connector => this.#current._createSecureConnector(target, options, credentials);
    return {
      connect: (socket) => connector().connect(socket),
      waitForReady: () => connector().waitForReady(),
      getCallCredentials: () => connector().getCallCredentials(),
      destroy: () => undefined,
    };
  }

  #make(): ChannelCredentials {
    return ChannelCredentials.createFromSecureContext(createSecureContext(this.#tls.context), this.#check);
  }
}
