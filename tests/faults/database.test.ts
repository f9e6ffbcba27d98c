import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { startEmbeddedPostgres } from '@stowage/launcher/embedded-postgres';
import type { EmbeddedPostgres } from '@stowage/launcher/embedded-postgres';
import { freePort } from '../support/free-ports.ts';
import { chmod, mkdtemp, rename, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { logIn, until } from '../support/client.ts';
import type { Client } from '../support/client.ts';
import { checkFiles, checkTables } from '../support/crash-check.ts';
import { CrashClient } from '../support/crash-client.ts';
import { Journal } from '../support/crash-journal.ts';
import { FaultReport, timesOf } from '../support/fault-report.ts';
import { faultSizes } from '../support/fault-sizes.ts';
import { startPlainly } from '../support/plain-start.ts';
import type { PlainStart } from '../support/plain-start.ts';
import { answers, findPostgres, processesOf } from '../support/postgres-process.ts';
import { killThem } from '../support/processes.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { adminPassword } from '../support/system.ts';
import type { Mode } from '../support/system.ts';

const clients = 4;
/** No request may take longer, whatever is down. */
const hangMs = 10_000;
const recoveryLimitMs = 5_000;
const report = new FaultReport('R10 PostgreSQL killed under load');
afterAll(() => report.print());

const shapes: { mode: Mode; database: 'embedded' | 'external' }[] = [
  { mode: 'standalone', database: 'embedded' },
  { mode: 'services', database: 'external' },
];
if (faultSizes.everyShape) {
  shapes.push({ mode: 'standalone', database: 'external' }, { mode: 'services', database: 'embedded' });
}

describe.each(shapes)('R10 kill -9 of PostgreSQL under load, $mode, $database', ({ mode, database }) => {
  const random = new Random(chooseSeed());
  let folder: string;
  let journalFile: string;
  let cluster: string;
  let external: EmbeddedPostgres | null = null;
  let stowage: PlainStart;
  let client: Client;
  let journal: Journal;

  beforeAll(async () => {
    process.stderr.write(`database, ${mode}, ${database}: STOWAGE_TEST_SEED=${random.seed}\n`);
    folder = await mkdtemp(join(tmpdir(), 'stowage-faults-'));
    await chmod(folder, 0o755);
    journalFile = join(folder, 'journal');
    journal = new Journal(journalFile);
    cluster = join(folder, database === 'external' ? 'external' : 'data/postgres');
    if (database === 'external') {
      external = await startEmbeddedPostgres({ directory: cluster, log: () => undefined });
      external.keepRunning();
    }
    const port = await freePort();
    stowage = startPlainly(mode, {
      STOWAGE_DATA_DIR: join(folder, 'data'),
      STOWAGE_PORT: String(port),
      STOWAGE_ADMIN_PASSWORD: adminPassword,
      STOWAGE_UPLOAD_LEASE: '2s',
      STOWAGE_LOG_LEVEL: 'fatal',
      ...(external ? { STOWAGE_DATABASE_URL: external.url } : {}),
    });
    await stowage.ready;
    client = await logIn(`http://127.0.0.1:${port}`);
  });

  afterAll(async () => {
    stowage?.signal('SIGTERM');
    await stowage?.exited;
    await external?.stop();
    journal.close();
    await rm(folder, { recursive: true, force: true });
  });

  /** Kills it and keeps it down for a while; gives how long the service took from when the database was back. */
  async function killDatabase(): Promise<number> {
    const found = await findPostgres(cluster);
    if (!found) throw new Error('no PostgreSQL runs');
    const away = join(cluster, 'cluster.away');
    // Without its files it can not be started again before it is to.
    await rename(join(cluster, 'cluster'), away);
    killThem(await processesOf(found));
    await until(async () => (await client.get('/api/system/ready')).status === 503);
    await sleep(random.integer(0, 700));
    await rename(away, join(cluster, 'cluster'));
    await until(() => answers(found.url), 30_000);
    const back = performance.now();
    await until(async () => (await client.get('/api/system/ready')).status === 200);
    await until(
      async () => (await client.post('/api/directories', { name: `d${random.integer(0, 1e9)}` })).status === 201,
    );
    return performance.now() - back;
  }

  /** Asks all the time; every answer is one of two, and in time. */
  async function probe(stopped: () => boolean): Promise<{ refused: number; longestMs: number }> {
    const seen = { refused: 0, longestMs: 0 };
    while (!stopped()) {
      const start = performance.now();
      const answer = await client.get('/api/auth/me');
      const tookMs = performance.now() - start;
      seen.longestMs = Math.max(seen.longestMs, tookMs);
      if (tookMs > hangMs) journal.violated(`a request took ${tookMs} ms`);
      if (answer.status === 503 && !answer.headers.has('retry-after')) journal.violated('503 without Retry-After');
      if (answer.status === 503) seen.refused += 1;
      else if (answer.status !== 200) journal.violated(`a request was answered with ${answer.status}`);
      await sleep(50);
    }
    return seen;
  }

  test('costs nothing that was acknowledged, is told as 503, and the service is back in seconds', async () => {
    const directory = String((await client.makeDirectory('kills'))['id']);
    let stopped = false;
    const isStopped = (): boolean => stopped || journal.violations.length > 0;
    const probing = probe(() => stopped);
    const running = Array.from({ length: clients }, (_, index) => {
      const needs = { directory, random: random.fork(), journal, label: `client-${index}` };
      return new CrashClient(client, needs, { hangMs, deletes: 0.1, largest: 2_000_000 }).run(isStopped);
    });
    const ended = Promise.all(running).catch((error: unknown) => journal.violated(String(error)));
    const recoveries: number[] = [];
    for (let kill = 0; kill < faultSizes.databaseKills && journal.violations.length === 0; kill += 1) {
      await sleep(random.integer(200, 1_000));
      recoveries.push(await killDatabase());
    }
    stopped = true;
    await ended;
    const { refused, longestMs } = await probing;
    const judged = Journal.read(journalFile);
    await checkFiles(client, directory, judged);
    await checkTables((await findPostgres(cluster))?.url ?? '', judged);
    report.add(`${mode}, ${database}`, {
      kills: recoveries.length,
      ok: judged.count('ok'),
      unknown: judged.count('unknown'),
      recovery: timesOf(recoveries),
      'probes refused': refused,
      'longest probe': `${Math.round(longestMs)} ms`,
      answers: JSON.stringify(journal.answers),
    });
    expect({ seed: random.seed, violations: judged.violations }).toEqual({ seed: random.seed, violations: [] });
    expect(Math.max(...recoveries)).toBeLessThan(recoveryLimitMs);
    expect(refused).toBeGreaterThan(0);
    expect(judged.count('ok')).toBeGreaterThan(faultSizes.databaseKills);
    // The service itself never went away.
    expect(journal.answers['none'] ?? 0).toBe(0);
    expect(stowage.process.exitCode).toBeNull();
  });
});
