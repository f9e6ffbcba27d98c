import { afterAll, afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import pg from 'pg';
import { randomBytes } from 'node:crypto';
import { chown, mkdir, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { rootDirectoryId } from '@stowage/common/ids';
import { defaultBackend } from '../support/backends.ts';
import { expectStatus, logIn, until } from '../support/client.ts';
import type { Answer, Client, Json } from '../support/client.ts';
import { FaultReport } from '../support/fault-report.ts';
import { fillBytes } from '../support/fill-disk.ts';
import { JobTable } from '../support/job-table.ts';
import { exportCompressed, importPlan } from '../support/metadata.ts';
import { readDocument } from '../support/metadata-document.ts';
import { mountTmpfs, noTmpfs } from '../support/mounts.ts';
import type { Mount } from '../support/mounts.ts';
import { expectProblem } from '../support/problems.ts';
import { storedObjects } from '../support/stored-blobs.ts';
import { startSystem } from '../support/system.ts';
import type { System } from '../support/system.ts';

/** Their document takes more than what PostgreSQL may have left of a page. */
const directories = 3_000;
const full = /disk of the database is full/;
const report = new FaultReport('R05 no room on the disk of documents that are read and exports that are kept');
const maybe = noTmpfs === null ? describe : describe.skip;
if (noTmpfs !== null) report.leftOut('all', noTmpfs);
afterAll(() => report.print());

let disk: Mount;
let system: System;
let admin: Client;
let database: pg.Client;

/** What a test made, to be undone the other way round. */
const undo: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

async function mount(options: string): Promise<Mount> {
  const mounted = await mountTmpfs(options);
  undo.push(() => mounted.close());
  return mounted;
}

async function start(environment: Record<string, string> = {}): Promise<void> {
  system = await startSystem('standalone', {
    STOWAGE_EXPORT_INTERVAL: 'off',
    // Refused by the disk itself, not by the look at what is left of it.
    STOWAGE_LOCAL_RESERVE: '0',
    STOWAGE_LOG_LEVEL: 'fatal',
    ...environment,
  });
  undo.push(() => system.close());
  admin = await logIn(system.url);
  database = new pg.Client(system.databaseUrl);
  await database.connect();
  undo.push(() => database.end());
  await database.query(
    `insert into catalog.nodes (id, parent_id, kind, name)
     select (lpad(to_hex(n), 8, '0') || '-0000-7000-8000-000000000000')::uuid, $1, 'directory', 'many ' || n
     from generate_series(1, $2::int) n`,
    [rootDirectoryId, directories],
  );
}

maybe('R05 a database without room for what export writes', () => {
  const space = `tiny_${randomBytes(6).toString('hex')}`;

  beforeEach(async () => {
    disk = await mount('size=32m');
    undo.push(dropSpace);
    await start();
    await moveExports();
  });

  async function dropSpace(): Promise<void> {
    const server = new pg.Client(process.env['STOWAGE_TEST_POSTGRES_URL']);
    await server.connect();
    await server.query(`drop tablespace if exists ${space}`).finally(() => server.end());
  }

  /** Lets what export writes lie on the small disk; all else, and what PostgreSQL needs to live, has room. */
  async function moveExports(): Promise<void> {
    const place = join(disk.path, 'place');
    await mkdir(place);
    const { rows } = await database.query<{ data_directory: string }>('show data_directory');
    const { uid, gid } = await stat(rows[0]?.data_directory ?? '');
    await chown(place, uid, gid);
    const name = new URL(system.databaseUrl).pathname.slice(1);
    await database.query(`create tablespace ${space} location '${place}'`);
    await database.query(`grant create on tablespace ${space} to public`);
    await database.query(`alter table export.export_pieces set tablespace ${space}`);
    await database.query(`alter database "${name}" set default_tablespace = ${space}`);
    // A connection takes a setting of its database when it begins.
    await system.stop();
    await system.restart();
  }

  async function left(): Promise<Json> {
    const { rows } = await database.query<Json>(
      `select (select count(*)::int from pg_tables where schemaname = 'export' and tablename like 'staged%') as tables,
         (select count(*)::int from export.exports) as exports, (select count(*)::int from export.export_pieces) as pieces`,
    );
    return rows[0] ?? {};
  }

  function send(route: string, document: Buffer): Promise<Answer> {
    const headers = { 'content-type': 'application/json', 'content-encoding': 'gzip' };
    return admin.call('POST', `/api/exports/metadata/${route}`, { headers, raw: new Uint8Array(document) });
  }

  test('tells so, keeps nothing, and goes on when there is room', async () => {
    const document = await exportCompressed(admin);
    let giveBack = await fillBytes(disk.path);
    for (const route of ['validate', 'restore-plan']) {
      expect(expectProblem(await send(route, document), 503, 'unavailable')['detail']).toMatch(full);
      await until(async () => (await left())['tables'] === 0);
    }
    await giveBack();

    const plan = expectStatus(await send('restore-plan', document), 200).json;
    giveBack = await fillBytes(disk.path);
    expect(expectProblem(await importPlan(admin, plan), 503, 'unavailable')['detail']).toMatch(full);
    expect(await left()).toMatchObject({ exports: 0, pieces: 0 });
    await giveBack();

    const { previous_export_id: previous } = expectStatus(await importPlan(admin, plan), 200).json;
    expect((await readDocument(admin, previous))['counts'].directories).toBeGreaterThan(directories);
    expect(await left()).toMatchObject({ tables: 0, exports: 1 });
    report.add('documents and the state before an import', { refused: 3 });
  }, 120_000);
});

maybe('R05 a scheduled export that there is no room for', () => {
  let jobs: JobTable;
  let temporary: Mount;

  beforeEach(async () => {
    disk = await mount('size=16m');
    temporary = await mount('size=1m');
    await start({ STOWAGE_DATA_DIR: disk.path, TMPDIR: temporary.path });
    jobs = await JobTable.open(system.databaseUrl);
    undo.push(() => jobs.close());
  });

  const exportsOnDisk = async (): Promise<string[]> =>
    (await storedObjects(await defaultBackend(admin), {})).filter((path) => path.startsWith('exports/'));

  /** Lets the next try of a job come at once, and waits for its end. */
  async function tried(id: string, attempt: number): Promise<string | null> {
    await database.query('update jobs.jobs set run_after = now() where id = $1', [id]);
    await jobs.wake();
    const job = await until(async () => {
      const found = await jobs.read(id);
      return found.attempt === attempt && found.state !== 'running' ? found : null;
    }, 60_000);
    return job.state === 'succeeded' ? null : job.error_code;
  }

  test('says where there is none, leaves nothing there, and is kept once when there is', async () => {
    let giveBack = await fillBytes(disk.path);
    const id = await jobs.insert('metadata_export', {});
    expect(await tried(id, 1)).toBe('insufficient_storage');
    expect(await exportsOnDisk()).toEqual([]);
    await giveBack();

    giveBack = await fillBytes(temporary.path);
    expect(await tried(id, 2)).toBe('insufficient_storage');
    expect(await exportsOnDisk()).toEqual([]);
    await giveBack();
    expect(await readdir(temporary.path)).toEqual([]);

    expect(await tried(id, 3)).toBeNull();
    const { rows } = await database.query<Json>('select id, key, state from export.exports');
    expect(rows).toEqual([{ id: expect.any(String), key: expect.any(String), state: 'kept' }]);
    expect(await exportsOnDisk()).toEqual(rows.map(({ key }) => key));
    expect((await readDocument(admin, rows[0]?.['id']))['counts'].directories).toBeGreaterThan(directories);
    report.add('scheduled exports', { refused: 2 });
  }, 120_000);
});
