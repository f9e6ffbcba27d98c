import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { freePort } from '../support/free-ports.ts';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { defaultBackend, makeBackend } from '../support/backends.ts';
import { expectStatus, logIn, until, untilReady } from '../support/client.ts';
import type { Answer, Client, Json } from '../support/client.ts';
import { FaultReport, timesOf } from '../support/fault-report.ts';
import { faultSizes } from '../support/fault-sizes.ts';
import { makeInstallation } from '../support/installation.ts';
import { faultsOf, importedRecordsOf, readDocument } from '../support/metadata-document.ts';
import { startPlainly } from '../support/plain-start.ts';
import type { PlainStart } from '../support/plain-start.ts';
import { answers, findPostgres, processesOf } from '../support/postgres-process.ts';
import { isGone, killThem, servicePidOf } from '../support/processes.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { adminPassword } from '../support/system.ts';
import type { Mode } from '../support/system.ts';

const files = 1_500;
const watchedFiles = 20;
/** In one of five rounds all of PostgreSQL dies, in two one of its processes, and with that all connections. */
const killed = ['service', 'connection', 'service', 'connection', 'database'] as const;
type Killed = (typeof killed)[number];
const report = new FaultReport('R15 imports that are killed');
afterAll(() => report.print());

/** The metadata as they were at some time. */
interface State {
  document: Json;
  records: Records;
}

type Records = Record<string, string[]>;

/** The sections that are not as in that state, each with what is there too much and what lacks. */
function differing(records: Records, { records: wanted }: State): string[] {
  return Object.entries(wanted).flatMap(([section, lines]) => {
    const [found, known] = [new Set(records[section]), new Set(lines)];
    const surplus = [...found].filter((line) => !known.has(line));
    const lacking = lines.filter((line) => !found.has(line));
    if (surplus.length + lacking.length === 0) return [];
    const some = [...surplus.slice(0, 2).map((line) => `+${line}`), ...lacking.slice(0, 2).map((line) => `-${line}`)];
    return [`${section} (+${surplus.length} -${lacking.length}: ${some.join(' ')})`];
  });
}

describe.each<Mode>(['standalone', 'services'])('R15 an import that is killed, %s', (mode) => {
  const random = new Random(chooseSeed());
  const violations: string[] = [];
  const seen: Record<string, number> = {};
  let folder: string;
  let port: number;
  let stowage: PlainStart;
  let admin: Client;
  let watched: string;

  beforeAll(async () => {
    process.stderr.write(`import-kill, ${mode}: STOWAGE_TEST_SEED=${random.seed}\n`);
    folder = await mkdtemp(join(tmpdir(), 'stowage-faults-'));
    await chmod(folder, 0o755);
    port = await freePort();
    await start();
    admin = await logIn(`http://127.0.0.1:${port}`);
    const [home, other] = [await defaultBackend(admin), await makeBackend(admin)];
    const backendIds = [String(home['id']), String(other['id'])] as const;
    await withDatabase((pool) => makeInstallation(pool, { files, backendIds, seed: random.seed }));
    watched = String((await admin.makeDirectory('watched'))['id']);
    for (let n = 0; n < watchedFiles; n += 1) await admin.putFile(`old-${n}`, `${n}`, { directory: watched });
    await untilPlaced();
  }, 180_000);

  afterAll(async () => {
    stowage?.signal('SIGTERM');
    await stowage?.exited;
    await rm(folder, { recursive: true, force: true });
  });

  async function start(): Promise<void> {
    stowage = startPlainly(mode, {
      STOWAGE_DATA_DIR: join(folder, 'data'),
      STOWAGE_PORT: String(port),
      STOWAGE_ADMIN_PASSWORD: adminPassword,
      STOWAGE_JOB_INTERVAL: '1s',
      STOWAGE_REQUESTS_PER_MINUTE: '1000000',
      STOWAGE_LOG_LEVEL: 'fatal',
    });
    await stowage.ready;
  }

  const database = () => findPostgres(join(folder, 'data/postgres'));

  async function withDatabase<R>(work: (pool: pg.Pool) => Promise<R>): Promise<R> {
    const pool = new pg.Pool({ connectionString: (await database())?.url, max: 1 });
    pool.on('error', () => undefined);
    return work(pool).finally(() => pool.end());
  }

  /** Waits while a process that was killed comes back. */
  const live = (): Promise<Json> => until(() => readDocument(admin).catch(() => null), 60_000);

  /**
   * Waits for the second copy of each file that was uploaded. A document of before lacks them, and what follows its import,
   * full reconcile and placement, rightly notes them again: then the state is neither the old nor the new.
   */
  async function untilPlaced(): Promise<void> {
    await until(async () => {
      const { rowCount } = await withDatabase((pool) =>
        pool.query(
          `select from catalog.replicas r join catalog.nodes n on n.blob_id = r.blob_id
           where n.parent_id = $1 and r.state = 'available'`,
          [watched],
        ),
      );
      return rowCount === 2 * watchedFiles;
    }, 60_000);
  }

  async function state(): Promise<State> {
    const document = await live();
    violations.push(...faultsOf(document));
    return { document, records: importedRecordsOf(document) };
  }

  /** Renames what readers look at and a third of all files, and takes another third away. */
  async function changeMuch(): Promise<void> {
    await withDatabase(async (pool) => {
      await pool.query(`update catalog.nodes set name = replace(name, 'old', 'new') where parent_id = $1`, [watched]);
      const third = (n: number): string =>
        `kind = 'file' and parent_id <> $1 and abs(hashtext(id::text)) % 3 = ${n} and deleted_at is null`;
      await pool.query(`update catalog.nodes set name = name || ' (2)', version = version + 1 where ${third(0)}`, [
        watched,
      ]);
      await pool.query(`delete from catalog.nodes where ${third(1)}`, [watched]);
    });
  }

  /** Null where the connection broke. */
  const ask = (path: string, body: unknown): Promise<Answer | null> =>
    admin.post(`/api/exports/metadata/${path}`, body).catch(() => null);

  async function plan({ document }: State): Promise<string> {
    const answer = await until(async () => {
      const planned = await ask('restore-plan', document);
      return planned !== null && planned.status !== 503 && planned;
    });
    return String(expectStatus(answer, 200).json['validation_token']);
  }

  const replace = (token: string): Promise<Answer | null> =>
    ask('import', { confirm_replace: true, validation_token: token });

  /** As a client that was cut off would do it: while the last try is still being undone, it waits. */
  async function replaceAgain(token: string): Promise<Answer> {
    return until(async () => {
      const answer = await replace(token);
      const wait = answer === null || answer.status === 503 || /being imported/.test(String(answer.json['detail']));
      return !wait && answer;
    }, 60_000);
  }

  async function kill(what: Killed): Promise<void> {
    const launcher = stowage.process.pid ?? 0;
    if (what === 'service' && mode === 'standalone') {
      stowage.signal('SIGKILL');
      await stowage.exited;
      await start();
    } else if (what === 'service') {
      const pid = await servicePidOf(launcher, 'export');
      killThem([pid]);
      await until(() => isGone(pid));
    } else {
      const found = await database();
      if (!found) throw new Error('no PostgreSQL runs');
      killThem(what === 'database' ? await processesOf(found) : await importingConnection());
      await until(() => answers(found.url), 30_000);
    }
    await untilReady(admin, 60_000);
  }

  /** The process of PostgreSQL that does what the export service asks for. */
  async function importingConnection(): Promise<number[]> {
    const { rows } = await withDatabase((pool) =>
      pool.query<{ pid: number }>(
        `select a.pid from pg_stat_activity a
         where a.datname = current_database() and a.backend_type = 'client backend' and a.pid <> pg_backend_pid()
         order by exists (select from pg_locks l where l.pid = a.pid and l.relation::regclass::text like '%staged%') desc,
           exists (select from pg_locks l where l.pid = a.pid and l.locktype = 'advisory') desc limit 1`,
      ),
    );
    return rows.map(({ pid }) => pid);
  }

  /** Looks at one directory all the time: it is all old or all new, and never away but while a process is. */
  async function watch(stopped: () => boolean): Promise<number> {
    let looks = 0;
    while (!stopped()) {
      const answer = await admin.get(`/api/directories/${watched}/children?limit=100`).catch(() => null);
      if (answer?.status === 200) {
        looks += 1;
        const names: string[] = answer.json['items'].map(({ name }: Json) => String(name));
        const kinds = new Set(names.map((name) => name.slice(0, 3)));
        if (names.length !== watchedFiles || kinds.size !== 1) violations.push(`a reader saw ${names.join()}`);
      } else if (answer !== null && answer.status !== 503) {
        violations.push(`a reader was answered with ${answer.status}`);
      }
      await sleep(15);
    }
    return looks;
  }

  function count(what: string): void {
    seen[what] = (seen[what] ?? 0) + 1;
  }

  /** Kills an import at some moment; gives the state that is there in the end, which is always the target. */
  async function round(what: Killed, { from, to }: { from: State; to: State }, usualMs: number): Promise<void> {
    const token = await plan(to);
    const importing = replace(token);
    await sleep(random.next() * usualMs * 1.2);
    await kill(what);
    const answer = await importing;
    const left = importedRecordsOf(await live());
    const isNew = differing(left, to).length === 0;
    count(`${what}: ${isNew ? 'done' : 'undone'}`);
    if (!isNew && differing(left, from).length > 0)
      violations.push(
        `a ${what} was killed; ${differing(left, from).join()} are not old, ${differing(left, to).join()} not new`,
      );
    if (answer?.status === 200 && !isNew) violations.push(`what was acknowledged was lost with a ${what}`);
    const again = await replaceAgain(token);
    // What is staged does not outlive a crash of PostgreSQL.
    const mayBeLost = what !== 'service' && !isNew;
    const good = isNew ? again.status === 409 : again.status === 200 || (mayBeLost && again.status === 409);
    if (!good)
      violations.push(`${isNew ? 'a spent' : 'a good'} token was answered with ${again.status} after a ${what}`);
    if (again.status === 409 && again.json['code'] !== 'plan_stale') violations.push(`409 ${again.json['code']}`);
    if (!isNew && again.status === 409) expectStatus(await replaceAgain(await plan(to)), 200);
  }

  /** As if a day had gone by: plans have expired, and no import is as old as what one left half written. */
  async function age(): Promise<void> {
    await withDatabase(async (pool) => {
      await pool.query(`update export.plans set expires_at = now() - interval '1 hour'`);
      await pool.query(`update export.exports set created_at = now() - interval '1 day' where state = 'writing'`);
    });
  }

  async function leftOver(): Promise<Json> {
    const { rows } = await withDatabase((pool) =>
      pool.query<Json>(
        `select (select count(*)::integer from pg_tables where schemaname = 'export' and tablename like 'staged%') as tables,
           (select count(*)::integer from export.exports where state = 'writing') as writing,
           (select count(*)::integer from export.exports where state = 'kept') <= 4 as few`,
      ),
    );
    return rows[0] ?? {};
  }

  test('leaves all old or all new, its token spent or good, and readers never see anything between', async () => {
    const old = await state();
    await changeMuch();
    const changed = await state();
    const usual: number[] = [];
    for (const target of [old, changed]) {
      const token = await plan(target);
      const begun = performance.now();
      expectStatus(await replaceAgain(token), 200);
      usual.push(performance.now() - begun);
      expect(differing(importedRecordsOf(await live()), target)).toEqual([]);
    }
    let stopped = false;
    const watching = watch(() => stopped);
    let now: [State, State] = [changed, old];
    const rounds = faultSizes.importKills / 2;
    for (let n = 0; n < rounds && violations.length === 0; n += 1) {
      const [from, to] = now;
      await round(killed[n % killed.length] ?? 'service', { from, to }, Math.max(...usual));
      const wrong = differing(importedRecordsOf(await live()), to);
      if (wrong.length > 0) violations.push(`an import brought other ${wrong.join()}`);
      now = [to, from];
    }
    stopped = true;
    const looks = await watching;
    report.add(mode, { ...seen, undisturbed: timesOf(usual), looks });
    expect({ seed: random.seed, violations }).toEqual({ seed: random.seed, violations: [] });
    expect(looks).toBeGreaterThan(rounds);
    await age();
    expectStatus(await replaceAgain(await plan(now[1])), 200);
    await kill('service');
    const clean = { tables: 0, writing: 0, few: true };
    const isClean = async (): Promise<boolean> => JSON.stringify(await leftOver()) === JSON.stringify(clean);
    await until(isClean, 60_000).catch(() => undefined);
    expect(await leftOver()).toEqual(clean);
  }, 3_600_000);
});
