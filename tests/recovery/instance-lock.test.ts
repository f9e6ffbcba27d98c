import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { once } from 'node:events';
import pg from 'pg';
import { until } from '../support/client.ts';
import { FickleProxy } from '../support/fickle-proxy.ts';
import { childrenOf, isGone } from '../support/processes.ts';
import { startSystem } from '../support/system.ts';
import type { Mode, System } from '../support/system.ts';
import { startTestDatabase } from '../support/test-database.ts';
import type { TestDatabase } from '../support/test-database.ts';

let database: TestDatabase;
let proxy: FickleProxy;
let system: System;

beforeEach(async () => {
  database = await startTestDatabase();
  proxy = await FickleProxy.start(database.url);
});
afterEach(async () => {
  proxy.turn('answers');
  await system?.close();
  await proxy.close();
  await database.close();
});

test.each<Mode>(['standalone', 'services'])(
  '%s ends where another took its database while it was away',
  async (mode) => {
    system = await startSystem(mode, { STOWAGE_DATABASE_URL: proxy.url, STOWAGE_LOG_LEVEL: 'fatal' });
    const { launcher } = system;
    const exited = once(launcher, 'exit');
    const processes = await childrenOf(launcher.pid ?? 0);
    proxy.turn('refuses');
    const other = new pg.Client({ connectionString: database.url });
    await other.connect();
    await until(async () => {
      const { rows } = await other.query<{ held: boolean }>('select pg_try_advisory_lock(7869623) as held');
      return rows[0]?.held ?? false;
    });
    proxy.turn('answers');
    expect(await exited).toEqual([1, null]);
    expect(system.output()).toContain('Another Stowage took this database');
    await until(async () => (await Promise.all(processes.map(isGone))).every(Boolean));
    await other.end();
  },
);
