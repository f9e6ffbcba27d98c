import { AckPolicy, jetstreamManager } from '@nats-io/jetstream';
import type { Consumer, JetStreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import type { NatsConnection } from '@nats-io/transport-node';

/** An event as it lies in the stream. */
export interface ReadEvent {
  /** The place in the stream. */
  sequence: number;
  /** The subject that it was published on. */
  subject: string;
  messageId: string;
  contentType: string;
  redelivered: boolean;
  event: {
    id: string;
    type: string;
    source: string;
    subject: string;
    time: string;
    data: Record<string, unknown>;
    traceparent?: string;
  };
}

const stream = 'STOWAGE';

/** Reads the stream as any other program would: by a durable consumer, with acknowledgements. */
export class EventReader {
  readonly manager: JetStreamManager;
  readonly #connection: NatsConnection;
  readonly #consumer: Consumer;

  private constructor(connection: NatsConnection, manager: JetStreamManager, consumer: Consumer) {
    this.#connection = connection;
    this.manager = manager;
    this.#consumer = consumer;
  }

  /** `name` is the consumer's: the same one goes on where it was. The stream must be there. */
  static async open(url: string, name: string, filter = 'stowage.>'): Promise<EventReader> {
    const { host, username, password } = new URL(url);
    const connection = await connect({ servers: host, user: username, pass: password, maxReconnectAttempts: -1 });
    const manager = await jetstreamManager(connection);
    await manager.consumers.add(stream, {
      durable_name: name,
      filter_subject: filter,
      ack_policy: AckPolicy.Explicit,
    });
    return new EventReader(connection, manager, await manager.jetstream().consumers.get(stream, name));
  }

  /** All that there is and was not read yet. */
  async read(): Promise<ReadEvent[]> {
    const found: ReadEvent[] = [];
    const { num_pending: pending } = await this.#consumer.info();
    if (pending === 0) return found;
    const messages = await this.#consumer.fetch({ max_messages: pending, expires: 10_000 });
    for await (const message of messages) {
      found.push({
        sequence: message.seq,
        subject: message.subject,
        messageId: message.headers?.get('Nats-Msg-Id') ?? '',
        contentType: message.headers?.get('content-type') ?? '',
        redelivered: message.redelivered,
        event: message.json(),
      });
      message.ack();
    }
    await this.#connection.flush();
    return found;
  }

  async close(): Promise<void> {
    await this.#connection.close();
  }
}
