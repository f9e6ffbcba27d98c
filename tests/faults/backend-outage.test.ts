import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { defaultBackend } from '../support/backends.ts';
import { expectStatus, logIn, sha256, until } from '../support/client.ts';
import type { Client, Json } from '../support/client.ts';
import { FaultReport, timesOf } from '../support/fault-report.ts';
import { faultSizes } from '../support/fault-sizes.ts';
import { FickleProxy } from '../support/fickle-proxy.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { rawLocal, rawS3 } from '../support/raw-stores.ts';
import { describeWith, s3Server } from '../support/real-servers.ts';
import type { S3Server } from '../support/real-servers.ts';
import { makeS3Backend } from '../support/remote-backends.ts';
import { startServer } from '../support/share-servers.ts';
import type { OwnServer } from '../support/share-servers.ts';
import { startSystem } from '../support/system.ts';
import type { System } from '../support/system.ts';
import { OutageClient } from './support/outage-load.ts';
import type { Kept } from './support/outage-load.ts';

const filesBefore = 6;
const clientsEach = 2;
const beforeMs = 2_000;
const report = new FaultReport('R08 backends that are killed, or hang, under load');
afterAll(() => report.print());

/** A file class whose policy names the backend that goes away, and the default one. */
interface Load {
  fileClass: string;
  backend: 'killed' | 'hung';
  clients: OutageClient[];
  before: Kept[];
}

describeWith('S3', s3Server(), (server) => {
  const random = new Random(chooseSeed());
  const loads: Load[] = [];
  let own: OwnServer;
  let proxy: FickleProxy;
  let system: System;
  let admin: Client;
  let database: pg.Pool;
  let home: Json;
  const remote: Partial<Record<Load['backend'], { backend: Json; server: S3Server }>> = {};

  beforeAll(async () => {
    process.stderr.write(`backend outage: STOWAGE_TEST_SEED=${random.seed}\n`);
    const started = await startServer('S3');
    if (!started) throw new Error('there is no program for an S3 server of its own');
    own = started;
    proxy = await FickleProxy.start(server.url);
    system = await startSystem('standalone', { STOWAGE_CHECK_INTERVAL: '2s', STOWAGE_LOG_LEVEL: 'fatal' });
    admin = await logIn(system.url);
    database = new pg.Pool({ connectionString: system.databaseUrl, max: 2 });
    home = await defaultBackend(admin);
    const killed = {
      url: own.settings['STOWAGE_TEST_S3_URL'] ?? '',
      accessKey: own.settings['STOWAGE_TEST_S3_ACCESS_KEY'] ?? '',
      secretKey: own.settings['STOWAGE_TEST_S3_SECRET_KEY'] ?? '',
    };
    remote.killed = { backend: await makeS3Backend(admin, killed), server: killed };
    const hung = { ...server, url: proxy.url.replace(/\/$/, '') };
    remote.hung = { backend: await makeS3Backend(admin, hung), server };
    for (const [backend, there] of [
      ['killed', remote.killed],
      ['hung', remote.hung],
    ] as const) {
      await load(`second-${backend}`, backend, [home, there.backend]);
      await load(`first-${backend}`, backend, [there.backend, home]);
    }
  }, 180_000);

  afterAll(async () => {
    await database?.end();
    await system?.close();
    await proxy?.close();
    await own?.close();
  });

  /** A class with two copies, and files that have both. */
  async function load(fileClass: string, backend: Load['backend'], backends: Json[]): Promise<void> {
    const body = { backends: backends.map(({ id }) => id), replicas: 2 };
    expectStatus(await admin.call('PUT', `/api/policies/placement/${fileClass}`, { body }), 200);
    const clients = Array.from({ length: clientsEach }, () => new OutageClient(admin, fileClass, random.fork()));
    for (let made = 0; made < filesBefore; made += 1) await clients[made % clientsEach]?.upload();
    const before = clients.flatMap(({ kept }) => kept);
    expect(before).toHaveLength(filesBefore);
    loads.push({ fileClass, backend, clients, before });
    await until(async () => (await notTwice()) === 0, 60_000);
  }

  /** How many files have not two good copies. */
  async function notTwice(): Promise<number> {
    const { rows } = await database.query<{ count: string }>(`
      select count(*) from catalog.nodes n where kind = 'file' and (
        select count(*) from catalog.replicas r where r.blob_id = n.blob_id and r.state = 'available') <> 2`);
    return Number(rows[0]?.count);
  }

  test('no request fails while one copy is out of reach, and all comes right when it is back, without help', async () => {
    let stopped = false;
    const running = Promise.all(
      loads.flatMap(({ clients, before }) => clients.map((client) => client.run(() => stopped, before))),
    );
    await sleep(beforeMs);
    const everyone = loads.flatMap(({ clients }) => clients);
    const darkens = (backend: Load['backend']): void => {
      const clients = loads.filter((one) => one.backend === backend).flatMap((one) => one.clients);
      for (const client of clients) client.outageSince = performance.now();
    };
    darkens('killed');
    await own.kill();
    darkens('hung');
    proxy.turn('is silent');
    await sleep(faultSizes.backendOutageMs);
    await own.restart();
    proxy.turn('answers');
    const back = performance.now();
    await sleep(beforeMs);
    stopped = true;
    await running;

    for (const { fileClass, clients } of loads) {
      const unfinished = clients.reduce((sum, client) => sum + client.unfinished.length, 0);
      for (const client of clients) {
        for (const upload of client.unfinished) await until(() => client.goOn(upload), 60_000);
      }
      report.add(fileClass, {
        uploads: timesOf(clients.flatMap(({ uploadMs }) => uploadMs)),
        count: clients.flatMap(({ uploadMs }) => uploadMs).length,
        downloads: timesOf(clients.flatMap(({ downloadMs }) => downloadMs)),
        'begun before, ended after': unfinished,
        failures: clients.flatMap(({ failures }) => failures).length,
      });
    }
    expect({ seed: random.seed, failures: everyone.flatMap(({ failures }) => failures) }).toEqual({
      seed: random.seed,
      failures: [],
    });
    await until(async () => (await notTwice()) === 0, 180_000);
    report.add('converged', { 'ms after the return': Math.round(performance.now() - back) });
  }, 600_000);

  test('then every file lies whole on both of its backends, and no job is stuck', async () => {
    const local = rawLocal(home);
    let copies = 0;
    for (const { backend, clients } of loads) {
      const there = remote[backend];
      if (!there) throw new Error('no such backend');
      const bucket = rawS3(there.backend, there.server);
      for (const { id, sha256: hash } of clients.flatMap(({ kept }) => kept)) {
        const { rows } = await database.query<{ key: string }>(
          `select distinct r.key from catalog.nodes n join catalog.replicas r on r.blob_id = n.blob_id where n.id = $1`,
          [id],
        );
        expect(rows).toHaveLength(1);
        const key = rows[0]?.key ?? '';
        for (const store of [local, bucket]) expect(sha256(await store.read(key))).toBe(hash);
        copies += 2;
      }
      bucket.close();
    }
    const left = async (): Promise<Json[]> => {
      const { rows } = await database.query<Json>(`
        select kind, state, count(*)::int from jobs.jobs
        where kind in ('place_blob', 'verify_blob', 'remove_blob') and state in ('pending', 'running')
          or state = 'running' and lease_until < now() - interval '10 s' group by 1, 2`);
      return rows;
    };
    await until(async () => (await left()).length === 0, 120_000).catch(() => undefined);
    expect(await left()).toEqual([]);
    const { rows } = await database.query<Json>(`
      select count(*)::int as count from jobs.jobs where kind = 'place_blob' and state = 'failed'`);
    report.add('on the stores', { copies, 'jobs that gave up': rows[0]?.['count'] });
  }, 300_000);
});
