import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { mkdtemp, rm } from 'node:fs/promises';
import { Agent } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { defaultBackend, makeBackend } from '../support/backends.ts';
import { logIn } from '../support/client.ts';
import type { Client } from '../support/client.ts';
import { downloadDocument, postAndWait, sendDocument } from '../support/document-files.ts';
import { FaultReport } from '../support/fault-report.ts';
import { faultSizes } from '../support/fault-sizes.ts';
import { makeInstallation } from '../support/installation.ts';
import { MemoryWatch } from '../support/process-memory.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { startSystem } from '../support/system.ts';
import type { System } from '../support/system.ts';
import { getOnce, percentile } from './support/steady-load.ts';
import type { Outcome } from './support/steady-load.ts';

const files = faultSizes.documentFiles;
const growthLimitMib = 512;
const patienceMs = 10_000;
const report = new FaultReport('R26 big metadata documents');
afterAll(() => report.print());

const random = new Random(chooseSeed());
let folder: string;
let system: System;
let admin: Client;
let database: pg.Pool;
let watch: MemoryWatch;

beforeAll(async () => {
  process.stderr.write(`big documents: STOWAGE_TEST_SEED=${random.seed}\n`);
  folder = await mkdtemp(join(tmpdir(), 'stowage-faults-'));
  system = await startSystem('services', { STOWAGE_LOG_LEVEL: 'fatal', STOWAGE_REQUESTS_PER_MINUTE: '1000000' });
  admin = await logIn(system.url);
  database = new pg.Pool({ connectionString: system.databaseUrl, max: 1 });
  const [home, other] = [await defaultBackend(admin), await makeBackend(admin)];
  const backendIds = [String(home['id']), String(other['id'])] as const;
  await makeInstallation(database, { files, backendIds, seed: random.seed });
  const services = ['gateway', 'export', 'catalog'];
  const pids = await Promise.all(services.map(async (name) => [name, await system.pidOf(name)] as const));
  watch = await MemoryWatch.start(new Map(pids));
}, 600_000);

afterAll(async () => {
  watch?.stop();
  await database?.end();
  await system?.close();
  await rm(folder, { recursive: true, force: true });
});

/** Does `work` while somebody reads directories and files all the time. */
async function besideReaders<R>(part: string, work: () => Promise<R>): Promise<R> {
  await watch.restart();
  const reads: Outcome[] = [];
  let isOver = false;
  const agent = new Agent({ keepAlive: true });
  const read = async (path: string): Promise<void> => {
    while (!isOver) {
      reads.push(await getOnce(agent, { url: system.url, path, token: admin.token, timeoutMs: patienceMs }));
      await sleep(20);
    }
  };
  const reading = Promise.all(['/api/directories/root/children?limit=100', '/api/directories/root'].map(read));
  const begun = performance.now();
  const result = await work().finally(() => (isOver = true));
  const seconds = ((performance.now() - begun) / 1_000).toFixed(1);
  await reading;
  agent.destroy();
  const growth = await watch.growth();
  const failed = reads.filter(({ status }) => status !== 200).length;
  report.add(part, {
    seconds,
    reads: reads.length,
    failed,
    'p99 ms': percentile(reads, 0.99),
    'growth MiB': JSON.stringify(growth),
  });
  expect(failed).toBe(0);
  expect(reads.length).toBeGreaterThan(0);
  expect(Math.max(...Object.values(growth))).toBeLessThan(growthLimitMib);
  return result;
}

/** A third of all files has another name, another third is gone. */
async function changeMuch(): Promise<void> {
  const third = (n: number): string => `kind = 'file' and abs(hashtext(id::text)) % 3 = ${n}`;
  await database.query(`update catalog.nodes set name = name || ' (2)', version = version + 1 where ${third(0)}`);
  await database.query(`delete from catalog.nodes where ${third(1)}`);
}

test(`a document of ${files} files comes, is checked, planned and imported in bounded memory while reads go on`, async () => {
  const plain = join(folder, 'document.json');
  const gzip = join(folder, 'document.json.gz');
  const bytes = await besideReaders('export', () => downloadDocument(admin, plain));
  await besideReaders('export, gzip', () => downloadDocument(admin, gzip, true));
  expect(bytes).toBeGreaterThan(files * 1_100);
  const checked = await besideReaders('validate', () => sendDocument(admin, '/api/exports/metadata/validate', plain));
  expect(checked).toMatchObject({ valid: true, errors: [], counts: { files } });
  await changeMuch();
  const planned = await besideReaders('restore-plan, gzip', () =>
    sendDocument(admin, '/api/exports/metadata/restore-plan', gzip, true),
  );
  const token = Object(planned).validation_token;
  expect(Object(planned).changes.files).toMatchObject({ remove: 0 });
  const imported = await besideReaders('import', () =>
    postAndWait(admin, '/api/exports/metadata/import', { confirm_replace: true, validation_token: token }),
  );
  expect(imported).toMatchObject({ imported: { files } });
}, 3_600_000);
