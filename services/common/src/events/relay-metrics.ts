import { sql } from 'kysely';
import type { Kysely } from 'kysely';
import { query } from '../database/transaction.ts';
import type { Logger } from '../runtime/logger.ts';
import { counter, gauge, observeLooks } from '../runtime/metrics.ts';

/** To count all that waits would cost more the longer the bus is away. */
const countedMost = 10_000;
const staleMs = 120_000;

/** What a relay tells of itself and of the outbox. */
export interface RelayMetrics {
  /** Counts events that the bus keeps now. */
  published(count: number): void;
  stop(): void;
}

/** Tells how many events wait and for how long, how many were published, and whether the bus `works`; asks while it is scraped. */
export function relayMetrics<T>(
  db: Kysely<T>,
  works: () => Promise<boolean>,
  logger: Logger,
  everyMs = 15_000,
): RelayMetrics {
  const settings = { everyMs, staleMs, logger };
  const published = counter('stowage_events_published_total', 'Events that the bus took.', [{}]);
  const waiting = gauge('stowage_events_waiting', `Events that are not published yet, up to ${countedMost}.`);
  const oldest = gauge(
    'stowage_events_oldest_waiting_seconds',
    'The age of the oldest of them; 0 where there is none.',
  );
  const connected = gauge('stowage_events_bus_connected', '1 while the event bus takes events, else 0.');
  const stop = [
    observeLooks([connected], settings, async () => [[connected, (await works()) ? 1 : 0]]),
    observeLooks([waiting, oldest], settings, async () => {
      const { count, ageSeconds } = await readBacklog(db);
      return [
        [waiting, count],
        [oldest, ageSeconds],
      ];
    }),
  ];
  return { published: (count) => published.add(count), stop: () => stop.forEach((end) => end()) };
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
