import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import pg from 'pg';
import { defaultBackend } from '../support/backends.ts';
import { startBeside } from '../support/beside.ts';
import type { Beside } from '../support/beside.ts';
import { Client, expectStatus, logIn, until } from '../support/client.ts';
import type { Answer, Json } from '../support/client.ts';
import { FaultReport } from '../support/fault-report.ts';
import { JobTable } from '../support/job-table.ts';
import { importPlan, planRestore } from '../support/metadata.ts';
import { faultsOf, importedRecordsOf, readDocument } from '../support/metadata-document.ts';
import { isGone, killThem } from '../support/processes.ts';
import { storedObjects } from '../support/stored-blobs.ts';
import { startSystem, uniqueName } from '../support/system.ts';
import type { System } from '../support/system.ts';

const keep = 2;
const rounds = 3;
const report = new FaultReport('scheduled exports that are killed, and two processes of export');
afterAll(() => report.print());

let system: System;
let admin: Client;
let jobs: JobTable;
let database: pg.Pool;

beforeAll(async () => {
  system = await startSystem('services', {
    STOWAGE_EXPORT_INTERVAL: 'off',
    STOWAGE_EXPORT_KEEP: String(keep),
    STOWAGE_JOB_LEASE: '2s',
    STOWAGE_LOG_LEVEL: 'fatal',
  });
  admin = await logIn(system.url);
  jobs = await JobTable.open(system.databaseUrl);
  database = new pg.Pool({ connectionString: system.databaseUrl, max: 3 });
  database.on('error', () => undefined);
  await admin.putFile(uniqueName(), 'content');
});

afterAll(async () => {
  await database?.end();
  await jobs?.close();
  await system?.close();
});

describe('a job metadata_export whose process is killed', () => {
  const stopped = new Set<number>();
  let blocker: pg.PoolClient;

  beforeEach(async () => {
    blocker = await database.connect();
    await blocker.query('begin');
  });

  afterEach(async () => {
    for (const pid of stopped) goOn(pid);
    blocker.release(true);
  });

  function stop(pid: number): void {
    process.kill(pid, 'SIGSTOP');
    stopped.add(pid);
  }

  function goOn(pid: number): void {
    stopped.delete(pid);
    process.kill(pid, 'SIGCONT');
  }

  async function untilBlocked(statement: string): Promise<void> {
    await until(async () => {
      const { rowCount } = await database.query(
        `select from pg_stat_activity where wait_event_type = 'Lock' and query ilike $1 and pid <> pg_backend_pid()`,
        [`${statement}%`],
      );
      return rowCount === 1;
    });
  }

  const written = (): Promise<string> =>
    until(async () => {
      const { rows } = await database.query<{ id: string }>(`select id from export.exports where state = 'writing'`);
      return rows[0]?.id ?? null;
    });

  /** Brings the job that it starts to a moment, where it stands still; gives its id. */
  type Reach = (start: () => Promise<string>) => Promise<string>;

  const whileGiven: Reach = async (start) => {
    stop(await system.pidOf('backend-registry'));
    const id = await start();
    await written();
    return id;
  };

  const moments: [string, readonly string[], Reach][] = [
    [
      'while it reads the metadata',
      ['export'],
      async (start) => {
        await blocker.query('lock table catalog.nodes in access exclusive mode');
        const id = await start();
        await untilBlocked('copy (');
        return id;
      },
    ],
    ['while a backend is given the bytes', ['export'], whileGiven],
    [
      'while a backend is given the bytes, with the process that writes them there',
      ['export', 'backend-registry'],
      whileGiven,
    ],
    [
      'when all bytes are there, before it notes that',
      ['export'],
      async (start) => {
        const registry = await system.pidOf('backend-registry');
        stop(registry);
        const id = await start();
        await blocker.query('select from export.exports where id = $1 for update', [await written()]);
        goOn(registry);
        await untilBlocked('update export.exports');
        return id;
      },
    ],
    [
      'while it removes the oldest one',
      ['export'],
      async (start) => {
        await blocker.query('select from export.exports order by id limit 1 for update');
        const id = await start();
        await untilBlocked('delete from export.exports');
        return id;
      },
    ],
  ];

  test.each(moments)('is done again: %s', async (moment, services, reach) => {
    for (let made = 0; made < keep; made += 1) await untilDone(await jobs.insert('metadata_export', {}));
    const id = await reach(() => jobs.insert('metadata_export', {}));
    await expectNoHalves();
    const pids = await Promise.all(services.map((service) => system.pidOf(service)));
    killThem(pids);
    for (const pid of pids) {
      stopped.delete(pid);
      await until(() => isGone(pid));
    }
    for (const pid of stopped) goOn(pid);
    const begun = performance.now();
    await blocker.query('rollback');
    await untilDone(id);
    report.add(moment, { 'done again after ms': Math.round(performance.now() - begun) });
    expect((await jobs.read(id)).attempt).toBeGreaterThan(1);
    await expectTidy();
  });

  async function untilDone(id: string): Promise<void> {
    await until(async () => {
      await jobs.wake();
      const { state, error_code: code } = await jobs.read(id);
      if (state === 'failed') throw new Error(`the job failed: ${code}`);
      return state === 'succeeded';
    }, 60_000);
  }

  interface Row {
    id: string;
    key: string;
    state: string;
  }

  async function rows(): Promise<Row[]> {
    const found = await database.query<Row>('select id, key, state from export.exports order by id');
    return found.rows;
  }

  /** What is not whole is not given out. */
  async function expectNoHalves(): Promise<void> {
    for (const { id, state } of await rows()) {
      if (state === 'writing') expectStatus(await admin.get(`/api/exports/metadata?id=${id}`), 409);
    }
  }

  /** What is noted, what lies on the backend and what is given out are the same exports, each whole, and no more than are kept. */
  async function expectTidy(): Promise<void> {
    const found = await rows();
    expect(found.map(({ state }) => state)).toEqual(Array.from({ length: keep }, () => 'kept'));
    // Who was killed has only just come back.
    const backend = await until(() => defaultBackend(admin).catch(() => null));
    const objects = (await storedObjects(backend, {})).filter((path) => path.startsWith('exports/'));
    expect(objects).toEqual(found.map(({ key }) => key).sort());
    for (const { id } of found) {
      const document = await until(() => readDocument(admin, id).catch(() => null));
      expect(faultsOf(document)).toEqual([]);
    }
    const staged = await database.query(
      `select tablename from pg_tables where schemaname = 'export' and tablename like 'staged%'`,
    );
    expect(staged.rows).toEqual([]);
  }
});

describe('two processes of export, each with a gateway', () => {
  let beside: Beside;
  let gateway: Beside;
  let other: Client;

  beforeAll(async () => {
    beside = await startBeside(system, 'export');
    gateway = await startBeside(system, 'gateway', beside.addresses);
    other = new Client(gateway.url, admin.token);
  });

  afterAll(async () => {
    await gateway?.close();
    await beside?.close();
  });

  test('of imports at the same time one wins, and the others are told that their plan is stale', async () => {
    const directory = await admin.makeDirectory(uniqueName());
    for (let round = 0; round < rounds; round += 1) {
      const documents: [Json, Json] = [await named(directory), await named(directory)];
      await named(directory);
      const [one, two] = [await planRestore(admin, documents[0]), await planRestore(other, documents[1])];
      const imports: [Client, Json, Json][] = [
        [admin, one, documents[0]],
        [other, one, documents[0]],
        [admin, two, documents[1]],
        [other, two, documents[1]],
      ];
      const answers = await Promise.all(
        imports.map(async ([client, plan, document]): Promise<[Answer, Json]> => {
          return [await importPlan(client, plan), document];
        }),
      );
      const won = answers.filter(([{ status }]) => status === 200);
      const lost = answers.flatMap(([{ status, json }]) => (status === 200 ? [] : [[status, json['code']]]));
      expect(lost).toEqual([1, 2, 3].map(() => [409, 'plan_stale']));
      for (const [, document] of won) {
        expect(importedRecordsOf(await readDocument(other))).toEqual(importedRecordsOf(document));
      }
    }
    report.add('imports through two processes', { rounds, won: rounds });
  });

  /** The metadata with another name for a directory. */
  async function named(directory: Json): Promise<Json> {
    expectStatus(await admin.post(`/api/directories/${directory['id']}/rename`, { name: uniqueName() }), 200);
    return readDocument(admin);
  }
});
