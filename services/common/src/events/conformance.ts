import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { newId } from '../ids.ts';
import type { CloudEvent } from './cloud-event.ts';
import type { EventBus, EventHandler, Subscribed } from './event-bus.ts';

/** A bus to be tested, and the first word of the subjects that it carries. */
export interface BusUnderTest {
  bus: EventBus;
  prefix: string;
  close(): Promise<void>;
}

/** What every event bus promises. */
export function busConformance(name: string, open: () => Promise<BusUnderTest>): void {
  describe(`an event bus (${name})`, () => {
    let under: BusUnderTest;
    const subscribed = new Set<Subscribed>();
    beforeAll(async () => {
      under = await open();
      await under.bus.recentIds(1);
    });
    afterAll(() => under.close());
    afterEach(async () => {
      await Promise.all([...subscribed].map((subscription) => subscription.stop()));
      subscribed.clear();
    });

    const eventOf = (type: string, subject = newId()): CloudEvent => testEvent(`${under.prefix}.${type}`, subject);
    const subscribe = async (filter: string, handler: EventHandler, group = `test-${newId()}`): Promise<Subscribed> => {
      const subscription = await under.bus.subscribe({ name: group, filter: `${under.prefix}.${filter}`, handler });
      subscribed.add(subscription);
      return subscription;
    };
    const collect = async (filter: string, group?: string): Promise<CloudEvent[]> => {
      const heard: CloudEvent[] = [];
      await subscribe(filter, async (event) => void heard.push(event), group);
      return heard;
    };

    test('brings an event as it is to each subscriber whose filter it passes, and to no other', async () => {
      const [all, kind, state, other] = [
        await collect('>'),
        await collect('a.>'),
        await collect('*.done'),
        await collect('b.>'),
      ];
      const [event, last] = [eventOf('a.done'), eventOf('b.begun')];
      await under.bus.publish({ ...event, traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' });
      await under.bus.publish(last);
      await until(() => all.length === 2 && other.length === 1 && kind.length === 1 && state.length === 1);
      expect(kind).toEqual([{ ...event, traceparent: expect.stringContaining('-0af7651916cd43dd8448eb211c80319c-') }]);
      expect(other).toEqual([last]);
      expect(all.map(({ id }) => id)).toEqual([event.id, last.id]);
    });

    test('carries an event once, however often it is published', async () => {
      const heard = await collect('>');
      const [first, last] = [eventOf('a.twice'), eventOf('a.last')];
      await Promise.all([1, 2, 3].map(() => under.bus.publish(first)));
      await under.bus.publish(first);
      await under.bus.publish(last);
      await until(() => heard.length >= 2);
      expect(heard).toEqual([first, last]);
    });

    test('keeps the order of what is published one after the other', async () => {
      const heard = await collect('a.*');
      const events = Array.from({ length: 200 }, (_, n) => eventOf(`a.n${n % 3}`, 'one'));
      for (const event of events) await under.bus.publish(event);
      await until(() => heard.length >= 200);
      expect(heard.map(({ id }) => id)).toEqual(events.map(({ id }) => id));
    });

    test('shares the events among subscribers of one name', async () => {
      const group = `test-${newId()}`;
      const [first, second] = [await collect('a.shared', group), await collect('a.shared', group)];
      const events = Array.from({ length: 20 }, () => eventOf('a.shared'));
      await Promise.all(events.map((event) => under.bus.publish(event)));
      await until(() => first.length + second.length >= 20);
      expect([...first, ...second].map(({ id }) => id).sort()).toEqual(events.map(({ id }) => id).sort());
    });

    test('brings an event again whose handler failed, and the next of its resource after it', async () => {
      const tries: string[] = [];
      const handled: string[] = [];
      const other = await collect('a.hard');
      await subscribe('a.hard', async ({ id }) => {
        tries.push(id);
        if (tries.length < 3) throw new Error('not now');
        handled.push(id);
      });
      const [hard, next] = [eventOf('a.hard', 'one'), eventOf('a.hard', 'one')];
      await publishUntilKept(under.bus, hard);
      await publishUntilKept(under.bus, next);
      await until(() => handled.length === 2 && other.length === 2);
      expect(tries).toEqual([hard.id, hard.id, hard.id, next.id]);
      expect(other.map(({ id }) => id)).toEqual([hard.id, next.id]);
    });

    test('brings nothing more to who unsubscribed, after the event that was under way', async () => {
      const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
      const { promise: free, resolve: release } = Promise.withResolvers<void>();
      const heard: string[] = [];
      const subscription = await subscribe('a.stopped', async ({ id }) => {
        begin();
        await free;
        heard.push(id);
      });
      const [first, second] = [eventOf('a.stopped'), eventOf('a.stopped')];
      const kept = under.bus.publish(first);
      await begun;
      const stopped = subscription.stop();
      release();
      await Promise.all([kept, stopped]);
      await under.bus.publish(second);
      expect(heard).toEqual([first.id]);
    });

    test('tells the ids of the last events that it keeps', async () => {
      const events = Array.from({ length: 30 }, () => eventOf('a.kept'));
      for (const event of events) await under.bus.publish(event);
      const ids = events.map(({ id }) => id);
      expect([...(await under.bus.recentIds(10))]).toEqual(ids.slice(-10));
      const more = await under.bus.recentIds(1_000);
      expect(ids.every((id) => more.has(id))).toBe(true);
    });
  });
}

/** An event of no meaning. */
export function testEvent(type: string, subject: string): CloudEvent {
  return {
    specversion: '1.0',
    id: newId(),
    source: '/test',
    type,
    subject,
    time: new Date().toISOString(),
    datacontenttype: 'application/json',
    data: { id: subject, text: 'ä\u{1F600}' },
  };
}

/** As the relay does. */
async function publishUntilKept(bus: EventBus, event: CloudEvent): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await bus.publish(event);
    } catch (error) {
      if (tries === 10) throw error;
    }
  }
}

async function until(check: () => boolean): Promise<void> {
  const limit = Date.now() + 20_000;
  while (!check()) {
    if (Date.now() > limit) throw new Error('it did not happen in time');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
