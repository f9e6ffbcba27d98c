import type { CloudEvent } from './cloud-event.ts';

/** Does with an event what its subscriber wants. Safe to run twice, for an event may come again. */
export type EventHandler = (event: CloudEvent) => Promise<void>;

/** What a subscriber wants. */
export interface Subscription {
  /** Subscribers of one name share the events among them: each goes to one. Letters, digits and dashes. */
  name: string;
  /** As `stowage.jobs.>` or `stowage.jobs.*.failed`. */
  filter: string;
  handler: EventHandler;
}

/** A subscription that runs. */
export interface Subscribed {
  /** Begins no further event, and waits for the one that is under way. */
  stop(): Promise<void>;
}

/**
 * Carries events from the relay of the outbox to whoever subscribed. Nothing else publishes: a request never waits for a
 * bus, and an event exists because its row was committed.
 *
 * A subscriber gets each event at least once, those of one resource in their order, and hardly ever twice: what comes
 * again is dropped by its id. An event whose handler fails is tried again, and those of its resource wait behind it.
 */
export interface EventBus {
  /**
   * Settles once the bus keeps the event; the same id again is dropped. Rejects within seconds where that is not known:
   * the event may be there nevertheless.
   */
  publish(event: CloudEvent): Promise<void>;
  /**
   * The ids of the last `count` events that the bus keeps, for a publisher that does not know what became of those that
   * it, or the one before it, was at. Makes what the bus needs, should it be lost.
   */
  recentIds(count: number): Promise<ReadonlySet<string>>;
  /** Settles if the bus answers now. Rejects where it does not, at the latest after some seconds. */
  check(): Promise<void>;
  /** Hears what is published from now on. */
  subscribe(subscription: Subscription): Promise<Subscribed>;
  close(): Promise<void>;
}
