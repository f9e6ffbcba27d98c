import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import pg from 'pg';
import { migrations } from '@stowage/common/database/migrate';
import { until } from '@stowage/tests/support/client';
import { runCommand } from '@stowage/tests/support/image-command';
import { lateDatabase } from '@stowage/tests/support/late-database';
import type { LateDatabase } from '@stowage/tests/support/late-database';

test.each([
  ['no command', [], /^Give one command of gateway, .*migrate, .*apply\. None was given\.\n$/],
  ['one that does not exist', ['web'], /^Give one command of .*\. "web" is none\.\n$/],
  ['more than one', ['catalog', 'upload'], /^Give one command of .*\. "catalog upload" is none\.\n$/],
])('%s ends with 1 and a sentence', async (_, args, sentence) => {
  const command = runCommand(args);
  expect(await command.exited).toBe(1);
  expect(command.output()).toMatch(sentence);
});

describe('migrate', () => {
  let database: LateDatabase;
  beforeEach(async () => {
    database = await lateDatabase();
  });
  afterEach(() => database.close());

  const migrate = (settings: Record<string, string> = {}) =>
    runCommand(['migrate'], { STOWAGE_DATABASE_URL: database.url, ...settings });

  test('waits for the database, says what it applied, and has nothing to do the next time', async () => {
    const first = migrate();
    await until(async () => first.output().includes('Waiting for the database.'));
    await database.come();
    expect(await first.exited).toBe(0);
    expect(lastLine(first.output())).toMatchObject({ service: 'migrate', applied: Object.keys(migrations) });
    const second = migrate();
    expect(await second.exited).toBe(0);
    expect(lastLine(second.output())).toMatchObject({ applied: [] });
  });

  test('gives up with a sentence where the database does not come', async () => {
    const given = migrate({ STOWAGE_MIGRATE_TIMEOUT: '1s' });
    expect(await given.exited).toBe(1);
    expect(given.output()).toMatch(/^The database was not there within 1 s: connect ECONNREFUSED .*\.$/m);
    expect(given.output()).not.toContain(new URL(database.url).password);
  });

  test('that is called off while it waits ends at once', async () => {
    const given = migrate();
    await until(async () => given.output().includes('Waiting for the database.'));
    given.signal('SIGTERM');
    expect(await given.exited).toBe(1);
  });

  test('refuses a schema that is newer than this version, and leaves it as it is (R37)', async () => {
    await database.come();
    expect(await migrate().exited).toBe(0);
    const client = new pg.Client({ connectionString: database.directUrl });
    await client.connect();
    await client.query(`insert into kysely_migration (name, timestamp) values ('9999-later', now()::text)`);
    await client.end();
    const given = migrate();
    expect(await given.exited).toBe(1);
    expect(given.output()).toMatch(/^The schema of the database is newer than this version of Stowage, .*9999-later/m);
    expect(given.output()).not.toMatch(/\n\s+at /);
  });
});

function lastLine(output: string): unknown {
  return JSON.parse(output.trim().split('\n').at(-1) ?? '');
}
