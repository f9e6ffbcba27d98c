import { unavailable } from '../errors.ts';
import type { CloudEvent } from './cloud-event.ts';
import type { EventBus, EventHandler, Subscribed, Subscription } from './event-bus.ts';
import { RecentIds } from './recent-ids.ts';
import { subjectMatches } from './subject.ts';

interface Group {
  filter: string;
  handlers: EventHandler[];
  handled: RecentIds;
}

/**
 * The bus of one process. It keeps nothing: an event counts as kept when all its subscribers have dealt with it, and
 * until then its row waits in the outbox, also over a restart.
 */
export class LocalBus implements EventBus {
  readonly #groups = new Map<string, Group>();
  readonly #kept = new RecentIds();
  readonly #underWay = new Map<string, Promise<void>>();
  #closed = false;

  async publish(event: CloudEvent): Promise<void> {
    if (this.#closed) throw unavailable('The event bus was closed.');
    if (this.#kept.has(event.id)) return;
    const before = this.#underWay.get(event.id);
    if (before) return before;
    const delivery = this.#deliverToAll(event).finally(() => this.#underWay.delete(event.id));
    this.#underWay.set(event.id, delivery);
    return delivery;
  }

  async recentIds(count: number): Promise<ReadonlySet<string>> {
    return this.#kept.last(count);
  }

  async check(): Promise<void> {
    if (this.#closed) throw unavailable('The event bus was closed.');
  }

  async subscribe({ name, filter, handler }: Subscription): Promise<Subscribed> {
    const group = this.#groups.get(name) ?? { filter, handlers: [], handled: new RecentIds() };
    this.#groups.set(name, group);
    group.handlers.push(handler);
    return {
      stop: async () => {
        group.handlers.splice(group.handlers.indexOf(handler), 1);
        if (group.handlers.length === 0) this.#groups.delete(name);
        await Promise.allSettled(this.#underWay.values());
      },
    };
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.allSettled(this.#underWay.values());
  }

  async #deliverToAll(event: CloudEvent): Promise<void> {
    const groups = [...this.#groups.values()].filter(({ filter }) => subjectMatches(filter, event.type));
    const results = await Promise.allSettled(groups.map((group) => this.#deliver(group, event)));
    const failed = results.find((result) => result.status === 'rejected');
    if (failed) throw unavailable('A subscriber failed.', failed.reason);
    this.#kept.add(event.id);
  }

  async #deliver(group: Group, event: CloudEvent): Promise<void> {
    const [handler] = group.handlers;
    if (!handler || group.handled.has(event.id)) return;
    await handler(event);
    group.handled.add(event.id);
  }
}
