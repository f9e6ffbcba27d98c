import { afterAll, afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { migrations } from '@stowage/common/database/migrate';
import { until } from '../support/client.ts';
import { FaultReport } from '../support/fault-report.ts';
import { faultSizes } from '../support/fault-sizes.ts';
import { runCommand } from '../support/image-command.ts';
import type { RunningCommand } from '../support/image-command.ts';
import { lateDatabase } from '../support/late-database.ts';
import type { LateDatabase } from '../support/late-database.ts';
import { chooseSeed, Random } from '../support/random.ts';

/** About as long as all migrations take on an empty database. */
const longestMs = 250;
const report = new FaultReport('R37 the migration is killed');
afterAll(() => report.print());

describe('R37 a migration', () => {
  const random = new Random(chooseSeed());
  let database: LateDatabase;
  let client: pg.Client;

  beforeEach(async () => {
    process.stderr.write(`migration-kill: STOWAGE_TEST_SEED=${random.seed}\n`);
    database = await lateDatabase();
    await database.come();
    client = new pg.Client({ connectionString: database.directUrl });
    await client.connect();
  });
  afterEach(async () => {
    await client.end();
    await database.close();
  });

  const migrate = (): RunningCommand => runCommand(['migrate'], { STOWAGE_DATABASE_URL: database.url });

  async function applied(): Promise<string[]> {
    const { rows } = await client.query<{ there: boolean }>(
      `select to_regclass('public.kysely_migration') is not null as there`,
    );
    if (!rows[0]?.there) return [];
    return (await client.query<{ name: string }>('select name from kysely_migration order by name')).rows.map(
      ({ name }) => name,
    );
  }

  /** Whether a migration is at work now. */
  async function working(): Promise<boolean> {
    const { rowCount } = await client.query(
      `select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
        and backend_type = 'client backend' and xact_start is not null`,
    );
    return rowCount !== 0;
  }

  test('that is killed at random is completed by the next one, whether by itself or beside another', async () => {
    const seen: number[] = [];
    while (seen.length < faultSizes.migrationKills) {
      const killed = migrate();
      await until(async () => (await working()) || !killed.lives(), 60_000);
      await sleep(random.integer(0, longestMs));
      killed.signal('SIGKILL');
      await killed.exited;
      const after = await applied();
      // All or nothing of each: what is noted is there, and in order.
      expect(after).toEqual(Object.keys(migrations).slice(0, after.length));
      if (after.length === Object.keys(migrations).length) await startOver();
      else seen.push(after.length);
    }
    const both = [migrate(), migrate()];
    expect(await Promise.all(both.map(({ exited }) => exited))).toEqual([0, 0]);
    expect(await applied()).toEqual(Object.keys(migrations));
    report.add('kills', { kills: seen.length, 'applied before the end': seen.join(' ') });
  });

  /** Another empty database: a kill that comes too late is no kill. */
  async function startOver(): Promise<void> {
    await client.end();
    await database.close();
    database = await lateDatabase();
    await database.come();
    client = new pg.Client({ connectionString: database.directUrl });
    await client.connect();
  }
});
