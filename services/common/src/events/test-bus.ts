import type { CloudEvent } from './cloud-event.ts';
import type { EventBus, Subscribed } from './event-bus.ts';

/** A bus that keeps events in memory and fails as it is told, also after it kept an event. Drops no second copy. */
export class TestBus implements EventBus {
  readonly kept: CloudEvent[] = [];
  /** Runs before an event is kept. */
  before: (event: CloudEvent) => Promise<void> | void = () => undefined;
  /** Runs after an event was kept, in place of the confirmation. */
  after: (event: CloudEvent) => Promise<void> | void = () => undefined;

  async publish(event: CloudEvent): Promise<void> {
    await this.before(event);
    this.kept.push(event);
    await this.after(event);
  }

  async recentIds(count: number): Promise<ReadonlySet<string>> {
    return new Set(this.kept.slice(-count).map(({ id }) => id));
  }

  async check(): Promise<void> {}

  async subscribe(): Promise<Subscribed> {
    throw new Error('nobody subscribes here');
  }

  async close(): Promise<void> {}
}
