import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { EventReader } from '@stowage/tests/support/event-reader';
import type { ReadEvent } from '@stowage/tests/support/event-reader';
import { MemoryWatch } from '@stowage/tests/support/process-memory';
import { describeWith, natsServer } from '@stowage/tests/support/real-servers';
import { startServer } from '@stowage/tests/support/share-servers';
import type { OwnServer } from '@stowage/tests/support/share-servers';
import { startTestDatabase } from '@stowage/tests/support/test-database';
import type { TestDatabase } from '@stowage/tests/support/test-database';
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import pg from 'pg';
import { openDatabase, queryBuilder } from '../database/database.ts';
import type { Database } from '../database/database.ts';
import { createLogger } from '../runtime/logger.ts';
import { testEvent } from './conformance.ts';
import { natsAddress } from './nats-address.ts';
import { NatsBus } from './nats-bus.ts';
import { OutboxRelay, relayTiming } from './outbox-relay.ts';
import { readWaiting } from './outbox-reader.ts';
import { RelayLease } from './relay-lease.ts';
import { defaultStream } from './stream.ts';

const logger = createLogger('test', 'silent');
/** A relay that fails gives its lease back. */
const untilGivenUp = 'select from jobs.outbox_relay where holder is null';

describeWith('NATS', natsServer(), () => {
  let server: TestDatabase;
  let database: Database;
  let admin: pg.Pool;
  let nats: OwnServer;
  let written = 0;
  const toClose = new Set<() => Promise<unknown>>();

  beforeAll(async () => {
    server = await startTestDatabase();
    database = openDatabase({ url: server.url, service: 'placement', connections: 4, logger });
    admin = new pg.Pool({ connectionString: server.url, max: 3 });
  });
  afterAll(async () => {
    await admin.end();
    await database.close();
    await server.close();
  });
  beforeEach(async () => {
    nats = await startServer('NATS');
    await admin.query('truncate jobs.outbox');
    await admin.query('update jobs.outbox_relay set holder = null, lease_until = now()');
  });
  afterEach(async () => {
    for (const close of [...toClose].reverse()) await close();
    toClose.clear();
    await nats.close();
  });

  /** Writes `count` events, by turns of so many resources, with so much text in each. */
  async function write(count: number, resources: number, textBytes = 0): Promise<void> {
    await admin.query(
      `insert into jobs.outbox (subject, data)
       select 'stowage.files.renamed',
         jsonb_build_object('id', (n % $2::int)::text, 'n', $4::int + n, 'text', repeat('x', $3::int))
       from generate_series(1, $1::int) n order by n`,
      [count, resources, textBytes, written],
    );
    written += count;
  }

  async function waiting(): Promise<number> {
    const { rows } = await admin.query<{ n: number }>(
      'select count(*)::int as n from jobs.outbox where published_at is null',
    );
    return rows[0]?.n ?? 0;
  }

  async function openReader(): Promise<EventReader> {
    const reader = await EventReader.open(nats.url, 'reader');
    toClose.add(() => reader.close());
    return reader;
  }

  /** A process that relays. */
  function spawnRelay(leaseMs: number): ChildProcess {
    const script = join(import.meta.dirname, 'test-relay.ts');
    // As `npm start` has it.
    const args = ['--max-semi-space-size=8', script, server.url, nats.url, String(leaseMs)];
    const child = spawn(process.execPath, args, { stdio: 'ignore' });
    toClose.add(() => end(child));
    return child;
  }

  function openBus(options = {}): NatsBus {
    const bus = new NatsBus(natsAddress(nats.url), logger, { ...defaultStream, ...options });
    toClose.add(() => bus.close());
    return bus;
  }

  function startRelay(bus: NatsBus): OutboxRelay<unknown> {
    const relay = new OutboxRelay({ db: queryBuilder(database), bus, logger, pollMs: 20 });
    toClose.add(() => relay.stop());
    relay.start();
    return relay;
  }

  /** Every row of the outbox lies in the stream once, as it is, and those of each resource in their order. */
  async function expectAllOnce(): Promise<ReadEvent[]> {
    const read = await (await openReader()).read();
    const { rows } = await admin.query<{ id: string }>('select id from jobs.outbox');
    expect(read.map(({ messageId }) => messageId).sort()).toEqual(rows.map(({ id }) => id).sort());
    const outOfOrder = [...Map.groupBy(read, ({ event }) => event.subject).values()].filter((events) =>
      events.some(({ event }, place) => Number(event.data['n']) < Number(events[place - 1]?.event.data['n'] ?? 0)),
    );
    expect(outOfOrder).toEqual([]);
    return read;
  }

  test('makes the stream, and corrects one of before without touching what an operator set', async () => {
    const bus = openBus();
    await bus.recentIds(1);
    const { manager } = await openReader();
    const { config } = await manager.streams.info('STOWAGE');
    const day = 24 * 3_600 * 1e9;
    const promised = {
      subjects: ['stowage.jobs.>', 'stowage.files.>'],
      storage: 'file',
      retention: 'limits',
      max_age: 7 * day,
      duplicate_window: 300 * 1e9,
    };
    expect(config).toMatchObject(promised);
    expect(defaultStream.duplicateWindowMs).toBeGreaterThan(relayTiming.leaseMs + relayTiming.retryMs);
    await manager.streams.update('STOWAGE', { ...config, max_age: day, max_bytes: 1e9, subjects: ['stowage.jobs.>'] });
    await bus.recentIds(1);
    expect((await manager.streams.info('STOWAGE')).config).toMatchObject({ ...promised, max_bytes: 1e9 });
  });

  test('begins where the end of the stream was deleted', async () => {
    const bus = openBus();
    await bus.recentIds(1);
    for (const n of ['a', 'b']) await bus.publish(testEvent('stowage.files.moved', n));
    const { manager } = await openReader();
    await manager.streams.deleteMessage('STOWAGE', 2);
    expect(await bus.recentIds(1)).toEqual(new Set());
    expect((await bus.recentIds(2)).size).toBe(1);
  });

  test('a relay that is killed in the middle is replaced, and every event is there once, in order', async () => {
    await write(3_000, 30);
    const first = spawnRelay(2_000);
    await until(async () => (await waiting()) < 3_000);
    spawnRelay(2_000);
    await write(10_000, 30);
    await until(async () => (await waiting()) < 10_000);
    await end(first);
    expect(await waiting()).toBeGreaterThan(0);
    await until(async () => (await waiting()) === 0);
    await expectAllOnce();
  });

  test('a relay that is frozen in the middle is replaced, and does no harm once it goes on', async () => {
    await write(10_000, 30);
    const first = spawnRelay(2_000);
    await until(async () => (await waiting()) < 10_000);
    first.kill('SIGSTOP');
    expect(await waiting()).toBeGreaterThan(0);
    spawnRelay(2_000);
    await until(async () => (await waiting()) === 0);
    first.kill('SIGCONT');
    await write(3_000, 30);
    await until(async () => (await waiting()) === 0);
    await expectAllOnce();
  });

  test('NATS may be killed again and again: what is written meanwhile comes once each and in order', async () => {
    startRelay(openBus());
    for (let round = 0; round < 3; round += 1) {
      await write(1_000, 10);
      await until(async () => (await waiting()) < 1_000);
      await nats.kill();
      await write(500, 10);
      await until(async () => (await admin.query(untilGivenUp)).rowCount === 1);
      await nats.restart();
    }
    await until(async () => (await waiting()) === 0);
    await expectAllOnce();
  });

  test('NATS may hang: what it takes late and is sent again lies there once, in order', async () => {
    startRelay(openBus());
    await write(500, 10);
    await until(async () => (await waiting()) < 500);
    nats.process.kill('SIGSTOP');
    await write(500, 10);
    await until(async () => (await admin.query(untilGivenUp)).rowCount === 1);
    nats.process.kill('SIGCONT');
    await until(async () => (await waiting()) === 0);
    await expectAllOnce();
  });

  test('what was kept and not marked is not sent again, be it longer ago than NATS knows ids', async () => {
    const bus = openBus({ duplicateWindowMs: 100 });
    await bus.recentIds(1);
    await write(20, 2);
    const lease = new RelayLease(queryBuilder(database), 60_000);
    const rows = await readWaiting(queryBuilder(database), (await lease.hold()) ?? '', 15);
    for (const event of rows) await bus.publish(event);
    await lease.release();
    const { manager } = await openReader();
    const count = async (): Promise<number> => (await manager.streams.info('STOWAGE')).state.messages;
    const probe = testEvent('stowage.files.purged', 'probe');
    await until(async () => {
      await bus.publish(probe);
      return (await count()) > 16;
    });
    await manager.streams.purge('STOWAGE', { filter: 'stowage.files.purged' });
    startRelay(bus);
    await until(async () => (await waiting()) === 0);
    await expectAllOnce();
  });

  test('a stream that was lost is made again, and what comes next lies in it', async () => {
    startRelay(openBus());
    await write(10, 1);
    await until(async () => (await waiting()) === 0);
    await nats.kill();
    await nats.wipe();
    await admin.query('truncate jobs.outbox');
    await nats.restart();
    await write(10, 1);
    await until(async () => (await waiting()) === 0);
    await expectAllOnce();
  });

  test('a longer backlog takes no more memory', async () => {
    await write(10_000, 100, 1_000);
    const relay = spawnRelay(5_000);
    await until(async () => (await waiting()) === 0);
    const watch = await MemoryWatch.start(new Map([['relay', relay.pid ?? 0]]));
    await write(20_000, 100, 1_000);
    await until(async () => (await waiting()) === 0);
    watch.stop();
    expect((await watch.growth())['relay']).toBeLessThan(64);
    expect(await expectAllOnce()).toHaveLength(30_000);
  });

  test('what was handled and comes again, as its acknowledgement was lost, is not handled again', async () => {
    const bus = openBus({ ackWaitMs: 2_000 });
    await bus.recentIds(1);
    const handled: string[] = [];
    await bus.subscribe({
      name: 'handler',
      filter: 'stowage.>',
      handler: async ({ id }) => {
        handled.push(id);
        if (handled.length === 1) await nats.kill();
      },
    });
    const [first, second] = [testEvent('stowage.files.moved', 'a'), testEvent('stowage.files.moved', 'a')];
    await bus.publish(first);
    await until(() => handled.length === 1);
    await nats.restart();
    await until(() =>
      bus.publish(second).then(
        () => true,
        () => false,
      ),
    );
    await until(() => handled.includes(second.id));
    expect(handled).toEqual([first.id, second.id]);
    const reader = await openReader();
    await until(async () => (await reader.manager.consumers.info('STOWAGE', 'handler')).num_ack_pending === 0);
  });

  test('a refused password fails no start, is not logged, and loses nothing', async () => {
    const lines: string[] = [];
    const told = createLogger('test', 'trace', { write: (line) => void lines.push(line) });
    const wrong = nats.url.replace(/:[^:@]+@/, ':canary-wrong-password@');
    const bus = new NatsBus(natsAddress(wrong), told);
    const relay = new OutboxRelay({ db: queryBuilder(database), bus, logger: told, pollMs: 20 });
    await write(10, 1);
    relay.start();
    await until(() => lines.length > 0);
    await relay.stop();
    await bus.close();
    expect(lines.join()).toContain('wait in the outbox');
    expect(lines.join()).not.toContain('canary');
    startRelay(openBus());
    await until(async () => (await waiting()) === 0);
    await expectAllOnce();
  });
});

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  child.kill('SIGKILL');
  await exited;
}

async function until(check: () => Promise<boolean> | boolean): Promise<void> {
  const limit = Date.now() + 60_000;
  while (!(await check())) {
    if (Date.now() > limit) throw new Error('it did not happen in time');
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
