import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { PrometheusExporter } from '@opentelemetry/exporter-prometheus';
import { NodeSDK } from '@opentelemetry/sdk-node';
import { startTestDatabase } from '@stowage/tests/support/test-database';
import type { TestDatabase } from '@stowage/tests/support/test-database';
import pg from 'pg';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import { openDatabase, queryBuilder } from '../database/database.ts';
import type { Database } from '../database/database.ts';
import { createLogger } from '../runtime/logger.ts';
import { relayMetrics } from './relay-metrics.ts';

const logger = createLogger('test', 'silent');
let server: TestDatabase;
let database: Database;
let admin: pg.Pool;
let scraped: Server;
let telemetry: NodeSDK;

beforeAll(async () => {
  server = await startTestDatabase();
  database = openDatabase({ url: server.url, service: 'placement', connections: 2, logger });
  admin = new pg.Pool({ connectionString: server.url, max: 1 });
  const exporter = new PrometheusExporter({ preventServerStart: true });
  telemetry = new NodeSDK({ metricReaders: [exporter], spanProcessors: [], autoDetectResources: false });
  telemetry.start();
  scraped = createServer((request, response) => exporter.getMetricsRequestHandler(request, response));
  await once(scraped.listen(0, '127.0.0.1'), 'listening');
});
afterAll(async () => {
  scraped.close();
  await telemetry.shutdown();
  await admin.end();
  await database.close();
  await server.close();
});

/** What a scraper reads, by name. */
async function scrape(): Promise<Record<string, number>> {
  const address = scraped.address();
  if (typeof address !== 'object' || !address) throw new Error('no port');
  const text = await (await fetch(`http://127.0.0.1:${address.port}/metrics`)).text();
  const found = text.matchAll(/^(stowage_\w+)(?:\{[^}]*\})? (\S+)/gm);
  return Object.fromEntries([...found].map(([, name = '', value]) => [name, Number(value)]));
}

test('metrics tell what waits and for how long, what was published, and whether the bus works', async () => {
  let works = true;
  const metrics = relayMetrics(queryBuilder(database), async () => works, logger, 0);
  metrics.published(2);
  metrics.published(3);
  expect(await scrape()).toEqual({
    stowage_events_waiting: 0,
    stowage_events_oldest_waiting_seconds: 0,
    stowage_events_published_total: 5,
    stowage_events_bus_connected: 1,
  });
  works = false;
  const write = `insert into jobs.outbox (subject, data, created_at, published_at)
    select 's', '{}', now() - interval '1 hour', $2 from generate_series(1, $1::int)`;
  await admin.query(write, [10, new Date()]);
  await admin.query(write, [3, null]);
  const waiting = await scrape();
  expect(waiting).toMatchObject({ stowage_events_waiting: 3, stowage_events_bus_connected: 0 });
  expect(Math.abs((waiting['stowage_events_oldest_waiting_seconds'] ?? 0) - 3_600)).toBeLessThan(60);
  await admin.query(write, [10_000, null]);
  expect(await scrape()).toMatchObject({ stowage_events_waiting: 10_000 });
  metrics.stop();
});
