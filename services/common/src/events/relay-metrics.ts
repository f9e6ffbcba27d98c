import { metrics } from '@opentelemetry/api';
import { sql } from 'kysely';
import type { Kysely } from 'kysely';
import { query } from '../database/transaction.ts';

/** To count all that waits would cost more the longer the bus is away. */
const countedMost = 10_000;

/** What a relay tells of itself and of the outbox. */
export interface RelayMetrics {
  /** Counts events that the bus keeps now. */
  published(count: number): void;
  stop(): void;
}

/** Tells how many events wait and for how long, how many were published, and whether the bus `works`; asks when it is scraped. */
export function relayMetrics<T>(db: Kysely<T>, works: () => Promise<boolean>): RelayMetrics {
  const meter = metrics.getMeter('stowage');
  const published = meter.createCounter('stowage.events.published', { description: 'Events that the bus took.' });
  const waiting = meter.createObservableGauge('stowage.events.waiting', {
    description: `Events that are not published yet, up to ${countedMost}.`,
  });
  const oldest = meter.createObservableGauge('stowage.events.waiting.age', {
    unit: 's',
    description: 'How long the first of the events that are not published has been waiting; 0 where none is.',
  });
  const connected = meter.createObservableGauge('stowage.events.bus.connected', {
    description: '1 while the event bus takes events, else 0.',
  });
  const observed = [waiting, oldest, connected];
  const observe: Parameters<typeof meter.addBatchObservableCallback>[0] = async (result) => {
    result.observe(connected, (await works()) ? 1 : 0);
    const backlog = await readBacklog(db);
    result.observe(waiting, backlog.count);
    result.observe(oldest, backlog.ageSeconds);
  };
  meter.addBatchObservableCallback(observe, observed);
  return {
    published: (count) => published.add(count),
    stop: () => meter.removeBatchObservableCallback(observe, observed),
  };
}

async function readBacklog<T>(db: Kysely<T>): Promise<{ count: number; ageSeconds: number }> {
  const { rows } = await query(() =>
    sql<{ count: number; age: number }>`
      select count(*)::int as count, coalesce(extract(epoch from now() - min(created_at)), 0)::float8 as age
      from (select created_at from jobs.outbox where published_at is null order by position limit ${countedMost}) first`.execute(
      db,
    ),
  );
  return { count: rows[0]?.count ?? 0, ageSeconds: Math.max(0, rows[0]?.age ?? 0) };
}
