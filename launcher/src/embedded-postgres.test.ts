import { chmod, mkdtemp, readFile, readdir, realpath, rename, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import pg from 'pg';
import { type EmbeddedPostgres, startEmbeddedPostgres } from './embedded-postgres.ts';
import { until } from './postgres/files.ts';

jest.setTimeout(60_000);

let folder: string;
let directory: string;
let messages: string[];
const running: EmbeddedPostgres[] = [];

beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'stowage-postgres-'));
  // mkdtemp makes it 0700, which would send the cluster of root to /var/lib/stowage.
  await chmod(folder, 0o755);
  directory = path.join(folder, 'postgres');
  messages = [];
});

afterEach(async () => {
  for (const server of running.splice(0)) await server.stop();
  await rm(folder, { recursive: true, force: true });
});

async function start(settings: Record<string, string> = {}): Promise<EmbeddedPostgres> {
  const server = await startEmbeddedPostgres({
    directory,
    log: (message) => messages.push(message),
    settings: { fsync: 'off', ...settings },
  });
  running.push(server);
  return server;
}

async function query(server: EmbeddedPostgres, text: string): Promise<unknown[]> {
  const client = new pg.Client({ connectionString: server.url });
  // A killed server also ends the connection, which is not what these tests are about.
  client.on('error', () => undefined);
  await client.connect();
  try {
    const { rows } = await client.query<Record<string, unknown>>(text);
    return rows.flatMap((row) => Object.values(row));
  } finally {
    await client.end();
  }
}

async function postmasterPid(cluster = path.join(directory, 'cluster')): Promise<number> {
  return Number((await readFile(path.join(cluster, 'postmaster.pid'), 'utf8')).split('\n')[0]);
}

/** Kills it and waits until it is dead: a signal to another process takes effect a little later. */
async function killPostmaster(cluster?: string): Promise<void> {
  const pid = await postmasterPid(cluster);
  process.kill(pid, 'SIGKILL');
  await until(async () => (await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => ') Z')).includes(') Z'), 10_000);
}

function isSeven(values: unknown[]): boolean {
  return values[0] === 7;
}

function isThere(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

describe('an embedded PostgreSQL', () => {
  test('keeps its data from one start to the next', async () => {
    const first = await start();
    expect(first.adopted).toBe(false);
    await query(first, "create table note as select 'hello' as text");
    await first.stop();
    await expect(readFile(path.join(directory, 'cluster', 'postmaster.pid'))).rejects.toMatchObject({ code: 'ENOENT' });
    const second = await start();
    expect(second.adopted).toBe(false);
    expect(await query(second, 'select text from note')).toEqual(['hello']);
    expect((await readdir(directory)).sort()).toEqual(['cluster', 'password', 'postgres.log']);
    expect((await stat(path.join(directory, 'password'))).mode & 0o777).toBe(0o600);
  });

  test('is set up for safety and for any text', async () => {
    const server = await start({ work_mem: '5MB' });
    const shown = async (name: string): Promise<unknown> => (await query(server, `show ${name}`))[0];
    expect(await shown('server_encoding')).toBe('UTF8');
    expect(await shown('data_checksums')).toBe('on');
    expect(await shown('synchronous_commit')).toBe('on');
    expect(await shown('listen_addresses')).toBe('127.0.0.1');
    expect(await shown('unix_socket_directories')).toBe(await realpath(path.join(directory, 'cluster')));
    expect(await shown('max_connections')).toBe('200');
    expect(await shown('work_mem')).toBe('5MB');
    expect(
      await query(server, "select datlocprovider::text || datlocale from pg_database where datname = 'postgres'"),
    ).toEqual(['bC.UTF-8']);
    const wrong = { ...server, url: server.url.replace(/:[^:@]*@/, ':wrong@') };
    await expect(query(wrong, 'select 1')).rejects.toThrow(/password authentication failed/);
  });

  test('is adopted when its handle was lost, and stopped through the new one', async () => {
    await query(await start(), 'create table note as select 7 as number');
    const pid = await postmasterPid();
    const second = await start();
    expect(second.adopted).toBe(true);
    expect(await postmasterPid()).toBe(pid);
    expect(await query(second, 'select number from note')).toEqual([7]);
    await second.stop();
    // It is our own child, and gone once Node has asked how it ended.
    expect(await until(async () => !isThere(pid), 5_000)).toBe(true);
  });

  test('recovers after its postmaster was killed', async () => {
    const first = await start();
    await query(first, 'create table note as select 7 as number');
    await killPostmaster();
    const second = await start();
    expect(second.adopted).toBe(false);
    expect(await query(second, 'select number from note')).toEqual([7]);
    expect(messages.join('\n')).toMatch(/ended unexpectedly: SIGKILL/);
  });

  test.each(['its own', 'an adopted'])(
    'that is to keep running comes back at the same address, as %s one',
    async (whose) => {
      const first = await start();
      const kept = whose === 'its own' ? first : await start();
      kept.keepRunning();
      await query(kept, 'create table note as select 7 as number');
      for (let kill = 0; kill < 2; kill += 1) {
        const pid = await postmasterPid();
        await killPostmaster();
        await until(async () => query(kept, 'select number from note').then(isSeven, () => false), 20_000);
        expect(await query(kept, 'select number from note')).toEqual([7]);
        expect(await postmasterPid()).not.toBe(pid);
      }
      await kept.stop();
      await expect(readFile(path.join(directory, 'cluster', 'postmaster.pid'))).rejects.toMatchObject({
        code: 'ENOENT',
      });
    },
  );

  test('is not started again when its cluster is gone, nor after it was stopped', async () => {
    const server = await start();
    server.keepRunning();
    const cluster = path.join(directory, 'cluster');
    await rename(cluster, `${cluster}.away`);
    await killPostmaster(`${cluster}.away`);
    await until(async () => messages.some((message) => message.includes('bring it back')), 10_000);
    await server.stop();
    expect(await readdir(directory)).not.toContain('cluster');
    expect(messages.join('\n')).toMatch(/next try in \d+ ms: .*cluster is gone/);
  });

  test('waits for the last backend of a killed postmaster', async () => {
    const first = await start();
    const client = new pg.Client({ connectionString: first.url });
    client.on('error', () => undefined);
    await client.connect();
    // A backend that does not look up from its work for a while.
    const busy = client.query('do $$ begin for i in 1..40000000 loop end loop; end $$').catch(() => undefined);
    await killPostmaster();
    const second = await start();
    expect(await query(second, 'select 1 as one')).toEqual([1]);
    await busy;
    const log = await readFile(path.join(directory, 'postgres.log'), 'utf8');
    expect(log).toMatch(/pre-existing shared memory block/);
    await client.end();
  });

  test.each(['', String(process.pid)])('is not held up by a stale postmaster.pid holding "%s"', async (pid) => {
    await (await start()).stop();
    const file = path.join(directory, 'cluster', 'postmaster.pid');
    await writeFile(file, pid === '' ? '' : `${pid}\n${path.dirname(file)}\n1\n1\n\n127.0.0.1\n1 1\nready   \n`);
    const second = await start();
    expect(second.adopted).toBe(false);
    expect(await query(second, 'select 1 as one')).toEqual([1]);
  });

  test('is shared by two starts at once', async () => {
    const servers = await Promise.all([start(), start()]);
    expect(servers.map((server) => server.adopted).sort()).toEqual([false, true]);
    for (const server of servers) expect(await query(server, 'select 1 as one')).toEqual([1]);
    expect((await readdir(directory)).sort()).toEqual(['cluster', 'password', 'postgres.log']);
  });

  test('names the end of its log when it cannot start', async () => {
    await expect(start({ shared_buffers: 'lots' })).rejects.toThrow(/postgres\.log[^]*shared_buffers/);
  });
});

const rootOnly = process.getuid?.() === 0 ? describe : describe.skip;

rootOnly('started by root, an embedded PostgreSQL', () => {
  const homes: string[] = [];

  beforeEach(async () => {
    await chmod(folder, 0o700);
  });

  afterEach(async () => {
    for (const server of running.splice(0)) await server.stop();
    for (const home of homes.splice(0)) await rm(home, { recursive: true, force: true });
  });

  async function home(): Promise<string> {
    const text = await readFile(path.join(directory, 'location'), 'utf8');
    const found = /"home": "(\/var\/lib\/stowage\/clusters\/[0-9a-f]{16})"/.exec(text)?.[1];
    if (found === undefined) throw new Error(`unexpected pointer: ${text}`);
    homes.push(found);
    return found;
  }

  test('keeps its cluster elsewhere when its own user cannot reach the folder', async () => {
    const first = await start();
    await query(first, 'create table note as select 7 as number');
    const cluster = path.join(await home(), 'cluster');
    expect((await stat(cluster)).uid).toBe(65534);
    await first.stop();
    const second = await start();
    expect(await query(second, 'select number from note')).toEqual([7]);
    expect((await start()).adopted).toBe(true);
    await killPostmaster(cluster);
    expect(await query(await start(), 'select number from note')).toEqual([7]);
  });

  test('does not bring back the database of a folder that was deleted', async () => {
    await query(await start(), 'create table note as select 7 as number');
    const cluster = path.join(await home(), 'cluster');
    const pid = await postmasterPid(cluster);
    await rm(directory, { recursive: true });
    const second = await start();
    expect(() => process.kill(pid, 0)).toThrow(/ESRCH/);
    await expect(query(second, 'select number from note')).rejects.toThrow(/does not exist/);
    const moved = messages.flatMap((message) => / to (\S+): delete it/.exec(message)?.[1] ?? []);
    homes.push(...moved);
    expect(moved).toHaveLength(1);
  });

  test('refuses to begin anew when its database is gone', async () => {
    await (await start()).stop();
    await rm(await home(), { recursive: true });
    await expect(start()).rejects.toThrow(/location says that the database is in .* bring it back/);
  });
});
