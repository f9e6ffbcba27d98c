import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { createLogger } from '@stowage/common/runtime/logger';
import { until } from '@stowage/tests/support/client';
import { FickleProxy } from '@stowage/tests/support/fickle-proxy';
import { startTestDatabase } from '@stowage/tests/support/test-database';
import type { TestDatabase } from '@stowage/tests/support/test-database';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';
import pg from 'pg';
import { InstanceLock } from './instance-lock.ts';

const logger = createLogger('test', 'silent');
let database: TestDatabase;
let admin: pg.Client;
const locks = new Set<InstanceLock>();
let lost: number;

beforeEach(async () => {
  lost = 0;
  database = await startTestDatabase();
  admin = new pg.Client({ connectionString: database.url });
  await admin.connect();
});
afterEach(async () => {
  await Promise.all([...locks].map((lock) => lock.release()));
  locks.clear();
  await admin.end();
  await database.close();
});

function lockAt(url: string): InstanceLock {
  const lock = new InstanceLock(url, logger, () => (lost += 1));
  locks.add(lock);
  return lock;
}

async function holders(): Promise<number[]> {
  const { rows } = await admin.query<{ pid: number }>(
    `select pid from pg_locks join pg_database on oid = database
     where locktype = 'advisory' and granted and datname = current_database()`,
  );
  return rows.map(({ pid }) => pid);
}

describe('the lock of an instance', () => {
  test('is refused to a second, and free once it is given back', async () => {
    const first = lockAt(database.url);
    await first.acquire('here');
    await expect(lockAt(database.url).acquire('here')).rejects.toThrow('Another Stowage is running');
    await first.release();
    await lockAt(database.url).acquire('here');
  });

  test('is taken again when its session ends, and after the database was away', async () => {
    const proxy = await FickleProxy.start(database.url);
    await lockAt(proxy.url).acquire('here');
    const [before] = await holders();
    await admin.query('select pg_terminate_backend($1)', [before]);
    const again = await until(async () => (await holders()).find((pid) => pid !== before) ?? null);
    proxy.turn('refuses');
    await until(async () => (await holders()).length === 0);
    proxy.turn('answers');
    await until(async () => (await holders()).some((pid) => pid !== again));
    await expect(lockAt(database.url).acquire('here')).rejects.toThrow('Another Stowage is running');
    expect(lost).toBe(0);
    await proxy.close();
  });

  test('is told as lost to whom another was faster than', async () => {
    const proxy = await FickleProxy.start(database.url);
    await lockAt(proxy.url).acquire('here');
    proxy.turn('refuses');
    await lockAt(database.url).acquire('here');
    const [holder] = await holders();
    proxy.turn('answers');
    await until(async () => lost > 0);
    expect([lost, await holders()]).toEqual([1, [holder]]);
    await proxy.close();
  });

  test('is taken from a session of its own that the server has not missed', async () => {
    const clients = new Set<Socket>();
    const proxy = await keepingProxy(database.url, clients);
    await lockAt(`${proxy.url}`).acquire('here');
    const [ghost] = await holders();
    for (const client of clients) client.destroy();
    await until(async () => (await holders()).some((pid) => pid !== ghost));
    expect(lost).toBe(0);
    proxy.server.close();
  });
});

/** A proxy that goes on holding its connection to the server when the client's is gone. */
async function keepingProxy(target: string, clients: Set<Socket>): Promise<{ url: string; server: Server }> {
  const { hostname: host, port } = new URL(target);
  const server = createServer((client) => {
    clients.add(client);
    const upstream = connect({ host, port: Number(port) });
    for (const socket of [client, upstream]) socket.on('error', () => undefined);
    client.on('data', (piece) => upstream.write(piece));
    upstream.on('data', (piece) => (client.destroyed ? undefined : client.write(piece)));
    upstream.on('close', () => client.destroy());
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const url = new URL(target);
  url.hostname = '127.0.0.1';
  url.port = String((server.address() as AddressInfo).port);
  return { url: url.href, server };
}
