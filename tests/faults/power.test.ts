import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { mkdtemp, rm } from 'node:fs/promises';
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
import { mountImage, whyNoImage } from '../support/mounts.ts';
import type { Image } from '../support/mounts.ts';
import { startPlainly } from '../support/plain-start.ts';
import type { PlainStart } from '../support/plain-start.ts';
import { findPostgres, processesOf } from '../support/postgres-process.ts';
import { childrenOf, isGone, killThem } from '../support/processes.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { freePort } from '../support/free-ports.ts';
import { adminPassword } from '../support/system.ts';
import type { Mode } from '../support/system.ts';

const clients = 4;
const imageMebibytes = 768;
const startLimitMs = 30_000;
const report = new FaultReport('R02 power cut of everything at once');
afterAll(() => report.print());

const why = await whyNoImage();
const maybe = why === null ? describe : describe.skip;
if (why !== null) report.leftOut('all', why);

/** Services, PostgreSQL and blobs lie on one disk; one process and six take turns on it. */
maybe('R02 a power cut', () => {
  const random = new Random(chooseSeed());
  let folder: string;
  let image: Image;
  let journal: Journal;
  let port: number;
  let stowage: PlainStart;
  let client: Client;
  let starts = 0;

  beforeAll(async () => {
    process.stderr.write(`power: STOWAGE_TEST_SEED=${random.seed}\n`);
    folder = await mkdtemp(join(tmpdir(), 'stowage-faults-'));
    image = await mountImage(imageMebibytes);
    journal = new Journal(join(folder, 'journal'));
    port = await freePort();
    await start();
    client = await logIn(`http://127.0.0.1:${port}`);
  }, 120_000);

  afterAll(async () => {
    stowage?.signal('SIGTERM');
    await stowage?.exited;
    await image?.close();
    journal?.close();
    await rm(folder, { recursive: true, force: true });
  });

  /** By itself, on whatever the cut left. Gives how long it took. */
  async function start(): Promise<number> {
    const begin = performance.now();
    const mode: Mode = starts % 2 === 0 ? 'standalone' : 'services';
    starts += 1;
    stowage = startPlainly(mode, {
      STOWAGE_DATA_DIR: join(image.path, 'data'),
      STOWAGE_PORT: String(port),
      STOWAGE_ADMIN_PASSWORD: adminPassword,
      STOWAGE_UPLOAD_LEASE: '2s',
      STOWAGE_LOCAL_RESERVE: '0',
      STOWAGE_LOG_LEVEL: 'fatal',
    });
    await stowage.ready;
    return performance.now() - begin;
  }

  async function cutPower(): Promise<number> {
    const database = await findPostgres(join(image.path, 'data/postgres'));
    const launcher = stowage.process.pid;
    if (!database || launcher === undefined) throw new Error('it does not run');
    image.cut();
    const pids = [launcher, ...(await childrenOf(launcher)), ...(await processesOf(database))];
    killThem(pids);
    for (const pid of pids) await until(() => isGone(pid));
    await stowage.exited;
    image.remount();
    return start();
  }

  test('loses nothing that was acknowledged, and every start is clean without hand work', async () => {
    const directory = String((await client.makeDirectory('cuts'))['id']);
    let stopped = false;
    const running = Array.from({ length: clients }, (_, index) => {
      const needs = { directory, random: random.fork(), journal, label: `client-${index}` };
      const habits = { powerCuts: true, deletes: 0.1, largest: 1_000_000 };
      return new CrashClient(client, needs, habits).run(() => stopped || journal.violations.length > 0);
    });
    const ended = Promise.all(running).catch((error: unknown) => journal.violated(String(error)));
    const startTimes: number[] = [];
    for (let cut = 0; cut < faultSizes.powerCuts && journal.violations.length === 0; cut += 1) {
      await sleep(random.integer(100, 1_500));
      startTimes.push(await cutPower());
    }
    stopped = true;
    await ended;
    const judged = Journal.read(join(folder, 'journal'));
    await checkFiles(client, directory, judged);
    await checkTables((await findPostgres(join(image.path, 'data/postgres')))?.url ?? '', judged);
    report.add('both modes in turn', {
      cuts: startTimes.length,
      ok: judged.count('ok'),
      unknown: judged.count('unknown'),
      'start to ready': timesOf(startTimes),
      answers: JSON.stringify(journal.answers),
    });
    expect({ seed: random.seed, violations: judged.violations }).toEqual({ seed: random.seed, violations: [] });
    expect(judged.count('ok')).toBeGreaterThan(faultSizes.powerCuts);
    expect(Math.max(...startTimes)).toBeLessThan(startLimitMs);
  }, 3_600_000);
});
