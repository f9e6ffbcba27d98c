import { afterAll, afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import pg from 'pg';
import { expectStatus, logIn, until } from '../support/client.ts';
import type { Client } from '../support/client.ts';
import { EventReader } from '../support/event-reader.ts';
import { FaultReport, timesOf } from '../support/fault-report.ts';
import { faultSizes } from '../support/fault-sizes.ts';
import { JobTable } from '../support/job-table.ts';
import { describeWith, natsServer } from '../support/real-servers.ts';
import { startServer } from '../support/share-servers.ts';
import type { OwnServer } from '../support/share-servers.ts';
import { startSystem, uniqueName } from '../support/system.ts';
import type { Mode, System } from '../support/system.ts';

/** How long a job may lie before a worker looks, at most. */
const pollMs = 5_000;
const clients = 4;
const report = new FaultReport('R11 NATS killed under load, and its volume wiped');
afterAll(() => report.print());

describeWith('NATS', natsServer(), () => {
  describe.each<Mode>(['standalone', 'services'])('R11 NATS is killed and loses all that it kept, %s', (mode) => {
    let nats: OwnServer;
    let system: System;
    let client: Client;
    let jobs: JobTable;
    let database: pg.Pool;

    beforeEach(async () => {
      nats = await startServer('NATS');
      system = await startSystem(mode, { STOWAGE_NATS_URL: nats.url, STOWAGE_LOG_LEVEL: 'fatal' });
      client = await logIn(system.url);
      jobs = await JobTable.open(system.databaseUrl);
      database = new pg.Pool({ connectionString: system.databaseUrl, max: 2 });
    });
    afterEach(async () => {
      await jobs?.close();
      await database?.end();
      await system?.close();
      await nats?.close();
    });

    async function rows<Row extends object>(query: string, values: unknown[] = []): Promise<Row[]> {
      return (await database.query<Row>(query, values)).rows;
    }

    async function none(query: string): Promise<boolean> {
      return (await rows(query)).length === 0;
    }

    test('no job is lost or done twice, none waits for NATS, and later events lie in a stream that is made again', async () => {
      const file = await client.putFile(uniqueName(), 'content');
      const params = await jobs.verification(String(file['id']));
      const made: string[] = [];
      const directories: string[] = [];
      let over = false;
      let back: { at: Date } | undefined;
      const load = Array.from({ length: clients }, async (_, n) => {
        while (!over) {
          if (n === 0) made.push(await jobs.insert('verify_blob', params));
          const answer = await client.post('/api/directories', { name: uniqueName() });
          directories.push(expectStatus(answer, 201).json['id']);
        }
      });
      const running = Promise.all(load);
      const untilMoreJobs = async (): Promise<void> => {
        const before = made.length;
        await until(async () => made.length > before + 5);
      };
      for (let left = faultSizes.natsKills; left > 0; left -= 1) {
        await untilMoreJobs();
        await nats.kill();
        // Given up, so that nothing that the lost stream had is marked after it is back.
        await until(() => none('select from jobs.outbox_relay where holder is not null'));
        await untilMoreJobs();
        if (left % 2 === 1) await nats.wipe();
        [back] = await rows<{ at: Date }>('select clock_timestamp() as at');
        await nats.restart();
      }
      await untilMoreJobs();
      over = true;
      await running;
      await until(
        () => none(`select from jobs.jobs where kind = 'verify_blob' and state in ('pending', 'running')`),
        60_000,
      );
      await until(() => none('select from jobs.outbox where published_at is null'), 60_000);

      for (const id of made) {
        expect(await jobs.read(id)).toMatchObject({ state: 'succeeded', attempt: 1 });
        expect((await jobs.events(id)).map(({ state }) => state)).toEqual(['running', 'succeeded']);
      }
      const kept = await rows<{ id: string }>('select id from catalog.nodes where id = any($1::uuid[])', [directories]);
      expect(kept).toHaveLength(directories.length);
      const waits = await rows<{ ms: number }>(
        'select extract(epoch from started_at - run_after)::float8 * 1000 as ms from jobs.jobs where id = any($1::uuid[])',
        [made],
      );
      const times = waits.map(({ ms }) => ms);
      expect(Math.max(...times)).toBeLessThan(2 * pollMs);

      const reader = await EventReader.open(nats.url, 'after');
      const heard = (await reader.read()).map(({ messageId }) => messageId);
      await reader.close();
      const later = await rows<{ id: string }>('select id from jobs.outbox where published_at > $1', [back?.at]);
      expect(later.length).toBeGreaterThan(0);
      expect(heard.toSorted()).toEqual(later.map(({ id }) => id).sort());
      report.add(mode, {
        jobs: made.length,
        changes: directories.length,
        'events after the wipe': later.length,
        'picked up': timesOf(times),
      });
    });

    test('a job is picked up within the poll interval without NATS and without any wake-up', async () => {
      const file = await client.putFile(uniqueName(), 'content');
      const params = await jobs.verification(String(file['id']));
      await nats.kill();
      await database.query(
        `insert into jobs.jobs (id, kind, params) select jobs.new_event_id(), 'verify_blob', $1 from generate_series(1, 3)`,
        [JSON.stringify(params)],
      );
      const begin = performance.now();
      await until(() => none(`select from jobs.jobs where kind = 'verify_blob' and state <> 'succeeded'`), 3 * pollMs);
      report.add(`${mode}, no wake-up`, { 'done after': timesOf([performance.now() - begin]) });
    });
  });
});
