import { jetstream, jetstreamManager } from '@nats-io/jetstream';
import type { JetStreamClient, JetStreamManager } from '@nats-io/jetstream';
import { connect, credsAuthenticator, nkeyAuthenticator } from '@nats-io/transport-node';
import type { NatsConnection as Connection } from '@nats-io/transport-node';
import { unavailable } from '../errors.ts';
import type { Logger } from '../runtime/logger.ts';
import type { NatsAddress } from './nats-address.ts';
import type { NatsCredentials } from './nats-credentials.ts';

const timeoutMs = 5_000;
const reconnectMs = 500;
/** A connection that says nothing for so long is taken for broken. */
const pingMs = 10_000;

/** What a connection that stands offers. */
export interface Live {
  connection: Connection;
  client: JetStreamClient;
  manager: JetStreamManager;
}

/** One connection to NATS, opened at first use and again whenever it is needed and gone. */
export class NatsConnection {
  readonly #address: NatsAddress;
  readonly #name: string;
  readonly #logger: Logger;
  #live: Promise<Live> | null = null;
  #isUp = false;
  #closed = false;

  constructor(address: NatsAddress, name: string, logger: Logger) {
    this.#address = address;
    this.#name = name;
    this.#logger = logger;
  }

  /** Throws `unavailable` at once while the connection is lost, and after 5 s where none can be made. */
  async use(): Promise<Live> {
    if (this.#closed) throw unavailable('The event bus was closed.');
    const live = await (this.#live ??= this.#open());
    if (!this.#isUp) throw unavailable('NATS can not be reached just now.');
    return live;
  }

  async close(): Promise<void> {
    this.#closed = true;
    const live = await this.#live?.catch(() => null);
    await live?.connection.close();
  }

  async #open(): Promise<Live> {
    try {
      const connection = await connect(this.#options());
      // Closed in between, while nobody could know of the connection yet.
      if (this.#closed) await connection.close();
      this.#isUp = true;
      void this.#watch(connection);
      const manager = await jetstreamManager(connection, { checkAPI: false, timeout: timeoutMs });
      return { connection, manager, client: jetstream(connection, { timeout: timeoutMs }) };
    } catch (error) {
      this.#live = null;
      throw unavailable('NATS can not be reached just now.', error);
    }
  }

  #options(): Parameters<typeof connect>[0] {
    const { servers, user, password, token, tls, credentials, ca } = this.#address;
    return {
      servers,
      name: this.#name,
      timeout: timeoutMs,
      pingInterval: pingMs,
      reconnectTimeWait: reconnectMs,
      maxReconnectAttempts: -1,
      ...(user === null ? {} : { user }),
      ...(password === null ? {} : { pass: password }),
      ...(token === null ? {} : { token }),
      ...(credentials ? { authenticator: authenticatorOf(credentials) } : {}),
      ...(tls || ca ? { tls: ca ? { ca } : {} } : {}),
    };
  }

  /** Notes whether the connection stands, and forgets one that was given up for good, as for a refused password. */
  async #watch(connection: Connection): Promise<void> {
    void connection.closed().then((error) => {
      this.#isUp = false;
      this.#live = null;
      if (error && !this.#closed) this.#logger.warn({ err: error }, 'The connection to NATS was given up.');
    });
    for await (const status of connection.status()) {
      if (status.type === 'disconnect') this.#isUp = false;
      else if (status.type === 'reconnect') this.#isUp = true;
    }
  }
}

function authenticatorOf({ kind, text }: NatsCredentials): ReturnType<typeof nkeyAuthenticator> {
  const bytes = new TextEncoder().encode(text);
  return kind === 'creds' ? credsAuthenticator(bytes) : nkeyAuthenticator(bytes);
}
