import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { startBeside } from '../support/beside.ts';
import type { Beside } from '../support/beside.ts';
import { defaultBackend, makeBackend } from '../support/backends.ts';
import { expectStatus, logIn, until } from '../support/client.ts';
import type { Client, Json } from '../support/client.ts';
import { FaultReport } from '../support/fault-report.ts';
import { faultSizes } from '../support/fault-sizes.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { describeWith, s3Server } from '../support/real-servers.ts';
import { makeS3Backend } from '../support/remote-backends.ts';
import { storedBlobs } from '../support/stored-blobs.ts';
import { startSystem } from '../support/system.ts';
import type { System } from '../support/system.ts';
import { RaceClient } from './support/race-client.ts';

const clients = 8;
const classes = ['race-a', 'race-b', 'race-c'];
const report = new FaultReport('R18 removals against all that makes, reads, deletes and moves');
afterAll(() => report.print());

describeWith('S3', s3Server(), (server) => {
  const random = new Random(chooseSeed());
  const violations: string[] = [];
  let system: System;
  let second: Beside;
  let admin: Client;
  let database: pg.Pool;
  let backends: Json[];

  beforeAll(async () => {
    process.stderr.write(`removal races: STOWAGE_TEST_SEED=${random.seed}\n`);
    system = await startSystem('services', {
      STOWAGE_LOG_LEVEL: 'fatal',
      STOWAGE_GC_GRACE: '0ms',
      STOWAGE_RECYCLE_RETENTION: '2s',
      STOWAGE_JOB_INTERVAL: '500ms',
      STOWAGE_SCRUB_AFTER: '1s',
      STOWAGE_RECONCILE_INTERVAL: '2s',
    });
    // Jobs of two workers, so that they race with each other too.
    second = await startBeside(system, 'placement');
    admin = await logIn(system.url);
    backends = [await defaultBackend(admin), await makeBackend(admin), await makeS3Backend(admin, server)];
    database = new pg.Pool({ connectionString: system.databaseUrl, max: 2 });
    database.on('error', () => undefined);
  }, 120_000);
  afterAll(async () => {
    await second?.close();
    await database?.end();
    await system?.close();
  });

  /** Any order of the backends, and as many copies as there may be. */
  async function savePolicy(fileClass: string): Promise<void> {
    const ordered = backends.map(({ id }) => ({ id, at: random.next() })).sort((one, other) => one.at - other.at);
    const replicas = random.integer(1, ordered.length);
    const body = { backends: ordered.map(({ id }) => id), replicas, sync_replicas: random.integer(1, replicas) };
    expectStatus(await admin.call('PUT', `/api/policies/placement/${fileClass}`, { body }), 200);
  }

  async function countOf(statement: string): Promise<number> {
    const { rows } = await database.query<{ count: string }>(`select count(*) as count from ${statement}`);
    return Number(rows[0]?.count);
  }

  /** All jobs that clients or the time asked for are done, and one more reconcile found nothing left to do. */
  async function comeToRest(): Promise<void> {
    await until(async () => {
      // What still waits for its time has been tried; with no removal under way none of them has to wait for its end.
      await database.query(`update jobs.jobs set run_after = now() where state = 'pending' and run_after > now()
        and (kind in ('remove_blob', 'place_blob', 'verify_blob') or params ? 'follow_up')`);
      await admin.post('/api/jobs/run-pending', { wait_seconds: 5 });
      const busy = `jobs.jobs where state in ('pending', 'running') and kind in ('remove_blob', 'place_blob', 'purge_recycle_bin')`;
      if ((await countOf(busy)) > 0) return false;
      await database.query(
        `update catalog.replicas set removing_since = now() - interval '3 min' where state = 'removing'`,
      );
      const { job } = expectStatus(await admin.post('/api/jobs/enqueue-full-reconcile', {}), 202).json;
      const done = await until(async () => {
        const { json } = await admin.get(`/api/jobs/${job.id}`);
        return ['succeeded', 'failed'].includes(json['state']) ? json : null;
      }, 60_000);
      expect(done['state']).toBe('succeeded');
      const unsettled = `catalog.replicas r join catalog.blobs b on b.id = r.blob_id where r.state <> 'available' or b.delete_after is not null`;
      const recycled = `catalog.nodes where deleted_at is not null`;
      return (await countOf(unsettled)) + (await countOf(recycled)) === 0;
    }, 120_000);
  }

  test('no content that is wanted is removed, none that was removed comes back, and none is left over', async () => {
    for (const fileClass of classes) await savePolicy(fileClass);
    const all = Array.from({ length: clients }, () => {
      const violated = (what: string): void => void violations.push(what);
      return new RaceClient({ client: admin, random: random.fork(), classes, violated });
    });
    const end = performance.now() + faultSizes.removalRacesMs;
    const isOver = (): boolean => performance.now() > end || violations.length > 0;
    const policies = async (): Promise<void> => {
      while (!isOver()) {
        await savePolicy(classes[random.integer(0, classes.length - 1)] ?? '');
        await sleep(random.integer(100, 1_500));
      }
    };
    await Promise.all([...all.map((one) => one.run(isOver)), policies()]);
    expect({ seed: random.seed, violations }).toEqual({ seed: random.seed, violations: [] });
    const begin = performance.now();
    await comeToRest();
    const restMs = Math.round(performance.now() - begin);
    for (const client of all) for (const file of client.files) await client.check(file);
    expect({ seed: random.seed, violations }).toEqual({ seed: random.seed, violations: [] });

    const files = all.flatMap((client) => client.files);
    for (const backend of backends) {
      const { rows } = await database.query<{ key: string }>(
        `select key from catalog.replicas where backend_id = $1 order by key collate "C"`,
        [backend['id']],
      );
      const stored = await storedBlobs(backend, { s3: server });
      expect(stored).toEqual(rows.map(({ key }) => key));
      report.add(`on ${backend['type']}`, { blobs: stored.length });
    }
    const fates = (fate: string): number => files.filter((file) => file.fate === fate).length;
    const answers: Record<string, number> = {};
    for (const { counts } of all)
      for (const [name, count] of Object.entries(counts)) answers[name] = (answers[name] ?? 0) + count;
    report.add('files', { made: files.length, live: fates('live'), gone: fates('gone'), unsure: fates('unsure') });
    report.add('jobs', {
      done: await countOf(`jobs.jobs where state = 'succeeded'`),
      failed: await countOf(`jobs.jobs where state = 'failed'`),
      'at rest after ms': restMs,
    });
    report.add('answers', answers);
    expect(files.length).toBeGreaterThan(clients);
  }, 900_000);
});
