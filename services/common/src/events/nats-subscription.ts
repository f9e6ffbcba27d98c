import type { ConsumerMessages, JsMsg } from '@nats-io/jetstream';
import { setTimeout as wait } from 'node:timers/promises';
import type { Logger } from '../runtime/logger.ts';
import type { CloudEvent } from './cloud-event.ts';
import type { Subscription } from './event-bus.ts';
import type { NatsConnection } from './nats-connection.ts';
import { RecentIds } from './recent-ids.ts';
import { ensureConsumer, ensureStream } from './stream.ts';
import type { StreamOptions } from './stream.ts';

const retryMs = 500;

/** Hands the events of a durable consumer to a handler, one at a time, and acknowledges what was handled. */
export class NatsSubscription {
  readonly #connection: NatsConnection;
  readonly #stream: StreamOptions;
  readonly #subscription: Subscription;
  readonly #logger: Logger;
  readonly #handled = new RecentIds();
  readonly #stop = new AbortController();
  #messages: ConsumerMessages | null = null;
  #loop: Promise<void> = Promise.resolve();

  constructor(connection: NatsConnection, stream: StreamOptions, subscription: Subscription, logger: Logger) {
    this.#connection = connection;
    this.#stream = stream;
    this.#subscription = subscription;
    this.#logger = logger;
  }

  start(): void {
    this.#loop = this.#work();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    this.#messages?.stop();
    await this.#loop;
  }

  /** Takes the consumer up again after every failure; one that was lost with its stream is made anew. */
  async #work(): Promise<void> {
    const { name, filter } = this.#subscription;
    while (!this.#stop.signal.aborted) {
      try {
        const { client, manager } = await this.#connection.use();
        await ensureStream(manager, this.#stream);
        await ensureConsumer(manager, this.#stream, name, filter);
        const consumer = await client.consumers.get(this.#stream.name, name);
        this.#messages = await consumer.consume({ max_messages: 10, abort_on_missing_resource: true });
        if (this.#stop.signal.aborted) return;
        for await (const message of this.#messages) await this.#handle(message);
      } catch (error) {
        this.#logger.debug({ err: error, subscription: name }, 'Events can not be read just now.');
      }
      await this.#pause();
    }
  }

  /** Tries until it is handled: what comes after it waits, so that order holds. */
  async #handle(message: JsMsg): Promise<void> {
    const event = message.json<CloudEvent>();
    const working = setInterval(() => message.working(), this.#stream.ackWaitMs / 3);
    try {
      while (!this.#handled.has(event.id) && !this.#stop.signal.aborted) await this.#try(event);
    } finally {
      clearInterval(working);
    }
    if (this.#handled.has(event.id)) message.ack();
    else message.nak();
  }

  async #try(event: CloudEvent): Promise<void> {
    try {
      await this.#subscription.handler(event);
      this.#handled.add(event.id);
    } catch (error) {
      const { name } = this.#subscription;
      this.#logger.warn({ err: error, subscription: name, event: event.id }, 'An event was not handled.');
      await this.#pause();
    }
  }

  async #pause(): Promise<void> {
    await wait(retryMs, undefined, { signal: this.#stop.signal }).catch(() => undefined);
  }
}
