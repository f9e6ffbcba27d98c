import type { JsMsg } from '@nats-io/jetstream';
import { headers } from '@nats-io/transport-node';
import { unavailable } from '../errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { cloudEventMediaType } from './cloud-event.ts';
import type { CloudEvent } from './cloud-event.ts';
import type { EventBus, Subscribed, Subscription } from './event-bus.ts';
import type { NatsAddress } from './nats-address.ts';
import { NatsConnection } from './nats-connection.ts';
import { NatsSubscription } from './nats-subscription.ts';
import { defaultStream, ensureConsumer, ensureStream, findStream } from './stream.ts';
import type { StreamOptions } from './stream.ts';

const publishTimeoutMs = 5_000;
const readTimeoutMs = 5_000;

/** Events on a stream of NATS JetStream that this makes: kept in files for 7 days, consumers durable. */
export class NatsBus implements EventBus {
  readonly #connection: NatsConnection;
  readonly #stream: StreamOptions;
  readonly #logger: Logger;
  readonly #subscriptions = new Set<NatsSubscription>();

  constructor(address: NatsAddress, logger: Logger, stream: StreamOptions = defaultStream) {
    this.#connection = new NatsConnection(address, 'stowage', logger);
    this.#stream = stream;
    this.#logger = logger;
  }

  async publish(event: CloudEvent): Promise<void> {
    const { client } = await this.#connection.use();
    const about = headers();
    about.set('content-type', cloudEventMediaType);
    if (event.traceparent !== undefined) about.set('traceparent', event.traceparent);
    try {
      await client.publish(event.type, JSON.stringify(event), {
        msgID: event.id,
        headers: about,
        timeout: publishTimeoutMs,
        expect: { streamName: this.#stream.name },
      });
    } catch (error) {
      throw unavailable('NATS did not confirm an event.', error);
    }
  }

  async recentIds(count: number): Promise<ReadonlySet<string>> {
    const { manager, client } = await this.#connection.use();
    const ids = new Set<string>();
    const { state } = await ensureStream(manager, this.#stream);
    if (state.messages === 0) return ids;
    const consumer = await client.consumers.get(this.#stream.name, {
      opt_start_seq: Math.max(state.first_seq, state.last_seq - count + 1),
      headers_only: true,
    });
    const messages = await consumer.fetch({ max_messages: count, expires: readTimeoutMs });
    // Where asking for messages is not allowed, NATS gives no answer at all, and the time above never ends.
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      messages.stop();
    }, 2 * readTimeoutMs);
    const complete = await readIds(messages, count, ids).finally(() => clearTimeout(timer));
    // An end in time with nothing at all: what was there was deleted.
    if (late || (!complete && ids.size > 0)) throw unavailable('NATS did not tell in time what it keeps.');
    await messages.close();
    await consumer.delete();
    return ids;
  }

  async check(): Promise<void> {
    const { manager } = await this.#connection.use();
    await findStream(manager, this.#stream.name);
  }

  async subscribe(subscription: Subscription): Promise<Subscribed> {
    const { manager } = await this.#connection.use();
    await ensureStream(manager, this.#stream);
    await ensureConsumer(manager, this.#stream, subscription.name, subscription.filter);
    const running = new NatsSubscription(this.#connection, this.#stream, subscription, this.#logger);
    running.start();
    this.#subscriptions.add(running);
    return {
      stop: async () => {
        this.#subscriptions.delete(running);
        await running.stop();
      },
    };
  }

  async close(): Promise<void> {
    await Promise.all([...this.#subscriptions].map((subscription) => subscription.stop()));
    await this.#connection.close();
  }
}

/** Reads up to the end of the stream, or `count`. False where the reading was broken off before. */
async function readIds(messages: AsyncIterable<JsMsg>, count: number, ids: Set<string>): Promise<boolean> {
  let read = 0;
  for await (const message of messages) {
    ids.add(idOf(message));
    read += 1;
    if (message.info.pending === 0 || read === count) return true;
  }
  return false;
}

function idOf(message: JsMsg): string {
  return message.headers?.get('Nats-Msg-Id') ?? '';
}
