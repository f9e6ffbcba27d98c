import { afterAll, beforeAll, expect, test } from '@jest/globals';
import pg from 'pg';
import { defaultBackend } from '../support/backends.ts';
import { expectStatus, logIn, until } from '../support/client.ts';
import type { Client, Json } from '../support/client.ts';
import { FaultReport, timesOf } from '../support/fault-report.ts';
import { faultSizes } from '../support/fault-sizes.ts';
import { FickleProxy } from '../support/fickle-proxy.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { describeWith, s3Server, webdavServer } from '../support/real-servers.ts';
import { makeS3Backend, makeWebdavBackend } from '../support/remote-backends.ts';
import { SlowProxy } from '../support/slow-proxy.ts';
import { startSystem, uniqueName } from '../support/system.ts';
import type { System } from '../support/system.ts';

/** So slow that a file takes longer than it may. */
const crawl = 1_024;
const fileBytes = 100_000;
const uploadsAtOnce = 8;
const filesOfOthers = 8;
/** No job for another backend may wait longer for its turn; a machine that is shared is given more. */
const delayLimitMs = 15_000;
const report = new FaultReport('R09 a backend that is slow, or never answers');
afterAll(() => report.print());

describeWith('S3', s3Server(), (s3) =>
  describeWith('WebDAV', webdavServer(), (webdav) => {
    const random = new Random(chooseSeed());
    let crawling: SlowProxy;
    let silent: FickleProxy;
    let system: System;
    let admin: Client;
    let database: pg.Pool;

    beforeAll(async () => {
      process.stderr.write(`slow backend: STOWAGE_TEST_SEED=${random.seed}\n`);
      crawling = await SlowProxy.start(s3.url);
      silent = await FickleProxy.start(s3.url);
      system = await startSystem('standalone', { STOWAGE_LOG_LEVEL: 'fatal' });
      admin = await logIn(system.url);
      database = new pg.Pool({ connectionString: system.databaseUrl, max: 2 });
      const home = await defaultBackend(admin);
      await policy('crawls', [home, await makeS3Backend(admin, { ...s3, url: crawling.url })]);
      await policy('silent', [home, await makeS3Backend(admin, { ...s3, url: silent.url.replace(/\/$/, '') })]);
      await policy('other', [home, await makeWebdavBackend(admin, webdav)]);
      await until(async () => (await pendingJobs()) === 0, 60_000);
      crawling.bytesPerSecond = crawl;
      silent.turn('is silent');
    }, 120_000);

    afterAll(async () => {
      await database?.end();
      await crawling?.close();
      await silent?.close();
      await system?.close();
    });

    async function policy(fileClass: string, backends: Json[]): Promise<void> {
      const body = { backends: backends.map(({ id }) => id), replicas: 2 };
      expectStatus(await admin.call('PUT', `/api/policies/placement/${fileClass}`, { body }), 200);
    }

    async function pendingJobs(): Promise<number> {
      const { rows } = await database.query<{ count: string }>(
        `select count(*) from jobs.jobs where kind in ('place_blob', 'full_reconcile') and state in ('pending', 'running')
           and run_after < now() + interval '1 minute'`,
      );
      return Number(rows[0]?.count);
    }

    async function put(fileClass: string): Promise<string> {
      const { id } = await admin.putFile(uniqueName(), random.bytes(fileBytes), { fileClass });
      return String(id);
    }

    async function isTwice(fileId: string): Promise<boolean> {
      const { placement } = expectStatus(await admin.get(`/api/files/${fileId}`), 200).json;
      return placement.replicas.filter((replica: Json) => replica['state'] === 'available').length === 2;
    }

    /** How long files of the other backend wait for their second copy. */
    async function othersMs(): Promise<number[]> {
      const times: number[] = [];
      for (let made = 0; made < filesOfOthers; made += 1) {
        const id = await put('other');
        const begunAt = performance.now();
        await until(() => isTwice(id), 120_000);
        times.push(performance.now() - begunAt);
      }
      return times;
    }

    test.each(['crawls', 'silent'])(
      'that %s holds up its own jobs only',
      async (fileClass) => {
        const queued = faultSizes.jobsOfSlowBackend;
        const before = await othersMs();
        let left = queued;
        const uploading = Array.from({ length: uploadsAtOnce }, async () => {
          while (left > 0) {
            left -= 1;
            await put(fileClass);
          }
        });
        await Promise.all(uploading);
        const during = await othersMs();
        const { rows } = await database.query<Json>(
          `select state, count(*)::int as count, max(attempt) as attempts from jobs.jobs
         where kind = 'place_blob' and state <> 'succeeded' group by 1 order by 1`,
        );
        const events = await database.query<Json>(
          `select count(*)::int as count from jobs.outbox where subject like 'stowage.jobs.place_blob.%'`,
        );
        report.add(`that ${fileClass}`, {
          queued,
          'others before': timesOf(before),
          'others meanwhile': timesOf(during),
          'jobs left': JSON.stringify(rows),
          'events of them': events.rows[0]?.['count'],
        });
        expect(Math.max(...during)).toBeLessThan(delayLimitMs);
      },
      300_000,
    );

    test('gets all that it was to have when it is itself again', async () => {
      crawling.bytesPerSecond = null;
      silent.turn('answers');
      const back = performance.now();
      expectStatus(await admin.post('/api/jobs/enqueue-full-reconcile', {}), 202);
      const missing = async (): Promise<number> => {
        const { rows } = await database.query<{ count: string }>(`
          select count(*) from catalog.nodes n where kind = 'file' and (
            select count(*) from catalog.replicas r where r.blob_id = n.blob_id and r.state = 'available') <> 2`);
        return Number(rows[0]?.count);
      };
      await until(async () => (await missing()) === 0, 240_000);
      report.add('back', { 'ms until all was there': Math.round(performance.now() - back) });
    }, 300_000);
  }),
);
