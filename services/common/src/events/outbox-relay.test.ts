import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { faultsOf, statementsOf } from '@stowage/tests/support/query-plans';
import { startTestDatabase } from '@stowage/tests/support/test-database';
import type { TestDatabase } from '@stowage/tests/support/test-database';
import fc from 'fast-check';
import { sql } from 'kysely';
import type { Kysely } from 'kysely';
import pg from 'pg';
import { openDatabase, queryBuilder } from '../database/database.ts';
import type { Database } from '../database/database.ts';
import { inTransaction } from '../database/transaction.ts';
import { newId } from '../ids.ts';
import { enqueueJobs } from '../jobs/bulk.ts';
import { writeOutbox } from '../jobs/outbox.ts';
import { claimJobs, settleJob } from '../jobs/queue.ts';
import { createLogger } from '../runtime/logger.ts';
import type { CloudEvent } from './cloud-event.ts';
import { OutboxRelay } from './outbox-relay.ts';
import type { RelayOptions } from './outbox-relay.ts';
import { markPublished, readWaiting } from './outbox-reader.ts';
import { RelayLease } from './relay-lease.ts';
import { TestBus } from './test-bus.ts';

const logger = createLogger('test', 'silent');
const relays = new Set<OutboxRelay<unknown>>();
let server: TestDatabase;
let database: Database;
let db: Kysely<unknown>;
let admin: pg.Pool;

beforeAll(async () => {
  server = await startTestDatabase();
  database = openDatabase({ url: server.url, service: 'placement', connections: 20, logger });
  db = queryBuilder(database);
  admin = new pg.Pool({ connectionString: server.url, max: 3 });
});
afterAll(async () => {
  await admin.end();
  await database.close();
  await server.close();
});
beforeEach(() => reset());
afterEach(() => stopAll());

async function reset(): Promise<void> {
  await admin.query('truncate jobs.outbox, jobs.jobs');
  await admin.query('update jobs.outbox_relay set holder = null, lease_until = now()');
}

async function stopAll(): Promise<void> {
  await Promise.all([...relays].map((relay) => relay.stop()));
  relays.clear();
}

function relayTo(bus: TestBus, options: Partial<RelayOptions<unknown>> = {}): OutboxRelay<unknown> {
  const relay = new OutboxRelay({ db, bus, logger, pollMs: 20, retryMs: 40, ...options });
  relays.add(relay);
  relay.start();
  return relay;
}

async function write(resource: string, n: number, trx: Kysely<unknown> = db): Promise<void> {
  await writeOutbox(trx, 'stowage.files.renamed', { id: resource, n });
}

async function waiting(): Promise<number> {
  const { rows } = await admin.query<{ n: number }>(
    'select count(*)::int as n from jobs.outbox where published_at is null',
  );
  return rows[0]?.n ?? 0;
}

/** The numbers of each resource's events, as they were kept. */
function numbersBy(events: readonly CloudEvent[]): Map<string, unknown[]> {
  const groups = Map.groupBy(events, ({ subject }) => subject);
  return new Map([...groups].map(([subject, group]) => [subject, group.map(({ data }) => data['n'])]));
}

async function until(check: () => Promise<boolean> | boolean): Promise<void> {
  const limit = Date.now() + 30_000;
  while (!(await check())) {
    if (Date.now() > limit) throw new Error('it did not happen in time');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

describe('the relay', () => {
  test('publishes what was written before it began and since, each once, and marks it', async () => {
    const bus = new TestBus();
    await write('a', 1);
    const relay = relayTo(bus);
    await until(() => bus.kept.length === 1);
    await write('a', 2);
    await write('b', 1);
    await until(async () => (await waiting()) === 0);
    await relay.stop();
    expect(numbersBy(bus.kept)).toEqual(
      new Map([
        ['a', [1, 2]],
        ['b', [1]],
      ]),
    );
    const { rows } = await admin.query<{ id: string; created_at: Date }>('select * from jobs.outbox order by position');
    expect(bus.kept.map(({ id }) => id).sort()).toEqual(rows.map(({ id }) => id).sort());
    expect(bus.kept[0]).toEqual({
      specversion: '1.0',
      id: rows[0]?.id,
      source: '/stowage/files',
      type: 'stowage.files.renamed',
      subject: 'a',
      time: rows[0]?.created_at.toISOString(),
      datacontenttype: 'application/json',
      data: { id: 'a', n: 1 },
    });
  });

  test('publishes what a transaction wrote early and committed late', async () => {
    const bus = new TestBus();
    relayTo(bus);
    const late = await admin.connect();
    await late.query('begin');
    await late.query(`insert into jobs.outbox (subject, data) values ('stowage.files.created', '{"id":"late","n":1}')`);
    await write('early', 1);
    await until(() => bus.kept.length === 1);
    await late.query('commit');
    late.release();
    await until(() => bus.kept.length === 2);
    expect(bus.kept.map(({ subject }) => subject)).toEqual(['early', 'late']);
  });

  test('brings the events of a job in their order, with the trace of who asked for it', async () => {
    const bus = new TestBus();
    const jobs = Array.from({ length: 50 }, (_, n) => ({ params: {}, runAfter: new Date(0), dedupeKey: String(n) }));
    await inTransaction(db, (trx) => enqueueJobs(trx, 'remove_blob', jobs));
    await admin.query(`update jobs.jobs set traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'`);
    relayTo(bus, { batch: 7 });
    const progress = { done: 1, total: 1, bytes: 0 };
    const work = async (): Promise<void> => {
      for (;;) {
        const claimed = await claimJobs(db, ['remove_blob'], 5, { holder: newId(), leaseMs: 60_000 });
        if (claimed.length === 0) return;
        for (const job of claimed) await settleJob(db, job, { state: 'succeeded', result: {}, progress });
      }
    };
    await Promise.all([work(), work(), work()]);
    await until(async () => (await waiting()) === 0);
    const states = Map.groupBy(bus.kept, ({ subject }) => subject).values();
    for (const events of states) {
      expect(events.map(({ type, data }) => `${type} ${data['attempt']}`)).toEqual([
        'stowage.jobs.remove_blob.pending 0',
        'stowage.jobs.remove_blob.running 1',
        'stowage.jobs.remove_blob.succeeded 1',
      ]);
      expect(events[1]?.traceparent).toContain('0af7651916cd43dd8448eb211c80319c');
    }
    expect(bus.kept).toHaveLength(150);
  });

  test('holds no more than a batch, however many wait, and sends no more at a time than allowed', async () => {
    await admin.query(
      `insert into jobs.outbox (subject, data)
       select 'stowage.files.created', jsonb_build_object('id', n::text, 'n', 1) from generate_series(1, 3000) n`,
    );
    const bus = new TestBus();
    let [underWay, most] = [0, 0];
    bus.before = async () => {
      underWay += 1;
      most = Math.max(most, underWay);
      await new Promise((resolve) => setImmediate(resolve));
      underWay -= 1;
    };
    relayTo(bus, { batch: 100, atOnce: 8 });
    await until(async () => (await waiting()) === 0);
    expect(bus.kept).toHaveLength(3_000);
    expect(most).toBe(8);
  });
});

describe('among 100,000 events', () => {
  test.each([
    ['none of which are published', 'null'],
    ['all of which are published', 'now()'],
  ])('%s, the relay reads no more than a batch', async (_, published) => {
    await admin.query(
      `insert into jobs.outbox (subject, data, published_at) select 's', '{}', ${published} from generate_series(1, 100000)`,
    );
    await admin.query('vacuum analyze jobs.outbox');
    const statements = await statementsOf(async () => {
      const fence = await new RelayLease(db, 60_000).hold();
      const events = await readWaiting(db, fence ?? '', 500);
      await markPublished(db, events.length > 0 ? events.map(({ id }) => id) : [newId()]);
    });
    expect(statements).toHaveLength(3);
    for (const statement of statements) expect(await faultsOf(admin, statement, ['outbox'], 3_000)).toEqual([]);
  });
});

describe('while the bus fails', () => {
  test('nothing is lost, and what the bus kept without saying so is not sent again', async () => {
    const bus = new TestBus();
    let isUp = false;
    bus.after = () => {
      if (!isUp) throw new Error('the answer was lost');
    };
    for (const n of [1, 2, 3]) await write('a', n);
    await write('b', 1);
    relayTo(bus);
    await until(() => bus.kept.length >= 2);
    isUp = true;
    await until(async () => (await waiting()) === 0);
    expect(numbersBy(bus.kept)).toEqual(
      new Map([
        ['a', [1, 2, 3]],
        ['b', [1]],
      ]),
    );
  });

  test('an event that it refuses holds up those of its resource, and no others', async () => {
    const bus = new TestBus();
    let refuses = true;
    bus.before = ({ subject }) => {
      if (refuses && subject === 'bad') throw new Error('no');
    };
    await write('bad', 1);
    await write('bad', 2);
    for (let n = 0; n < 100; n += 1) await write('good', n);
    relayTo(bus, { batch: 10 });
    await until(async () => (await waiting()) === 2);
    refuses = false;
    await until(async () => (await waiting()) === 0);
    expect(numbersBy(bus.kept).get('bad')).toEqual([1, 2]);
    expect(numbersBy(bus.kept).get('good')).toEqual(Array.from({ length: 100 }, (_, n) => n));
  });

  test('each event is kept once and in the order of its resource, whatever fails, writes or commits when', async () => {
    await fc.assert(
      fc.asyncProperty(fc.infiniteStream(fc.nat(99)), fc.integer({ min: 1, max: 20 }), async (dice, batch) => {
        await reset();
        await admin.query(
          `insert into jobs.jobs (id, kind, attempt) select ('0000000' || n || '-0000-7000-8000-000000000000')::uuid, 'x', 0
           from generate_series(0, 4) n`,
        );
        const roll = (): number => Number(dice.next().value);
        const fails = (percent: number) => (): void => {
          if (roll() < percent) throw new Error('away');
        };
        const bus = new TestBus();
        bus.before = fails(3);
        bus.after = fails(3);
        const relay = relayTo(bus, { batch, atOnce: 4 });
        await Promise.all(Array.from({ length: 6 }, () => change(12, roll)));
        await until(async () => (await waiting()) === 0);
        await relay.stop();
        for (const [resource, numbers] of numbersBy(bus.kept))
          expect([resource, numbers]).toEqual([resource, numbers.map((_, index) => index + 1)]);
        expect(bus.kept).toHaveLength(72);
      }),
      { numRuns: 12 },
    );
  });

  /** Changes one row after the other, each change in a transaction that takes its time. */
  async function change(times: number, roll: () => number): Promise<void> {
    for (let time = 0; time < times; time += 1) {
      const id = `0000000${roll() % 5}-0000-7000-8000-000000000000`;
      await inTransaction(db, async (trx) => {
        const { rows } = await sql<{ attempt: number }>`
          update jobs.jobs set attempt = attempt + 1 where id = ${id} returning attempt`.execute(trx);
        await write(id, rows[0]?.attempt ?? 0, trx);
        for (let wait = roll() % 4; wait > 0; wait -= 1) await sql`select 1`.execute(trx);
      });
    }
  }
});

describe('of several relays', () => {
  test('one publishes at a time, and another goes on when that one stops', async () => {
    const buses = [new TestBus(), new TestBus()];
    const [first, second] = buses.map((bus) => relayTo(bus));
    await write('a', 1);
    await until(async () => (await waiting()) === 0);
    const busy = buses.findIndex((bus) => bus.kept.length === 1);
    await (busy === 0 ? first : second)?.stop();
    await write('a', 2);
    await until(async () => (await waiting()) === 0);
    expect(buses.map((bus) => bus.kept.length)).toEqual([1, 1]);
  });

  test('a frozen one is replaced when its lease is over, and sends nothing once it goes on', async () => {
    const [frozen, present] = [new TestBus(), new TestBus()];
    const { promise: thaw, resolve } = Promise.withResolvers<void>();
    frozen.before = () => thaw;
    for (const n of [1, 2, 3]) await write('a', n);
    relayTo(frozen, { leaseMs: 300 });
    await until(
      async () => (await admin.query('select from jobs.outbox_relay where holder is not null')).rowCount === 1,
    );
    relayTo(present);
    await until(() => present.kept.length === 3);
    resolve();
    await write('a', 4);
    await until(async () => (await waiting()) === 0);
    // What was on its way arrives late: a real bus drops it by its id.
    expect(numbersBy(frozen.kept).get('a')).toEqual([1]);
    expect(numbersBy(present.kept).get('a')).toEqual([1, 2, 3, 4]);
  });

  test('who lost the lease reads nothing, and the fence rises with each holder', async () => {
    await write('a', 1);
    const [first, second] = [new RelayLease(db, 100), new RelayLease(db, 60_000)];
    const old = await first.hold();
    expect(await readWaiting(db, old ?? '', 10)).toHaveLength(1);
    expect(await second.hold()).toBeNull();
    let fence: string | null = null;
    await until(async () => (fence = await second.hold()) !== null);
    expect(first.isHeld).toBe(false);
    expect(await readWaiting(db, old ?? '', 10)).toEqual([]);
    expect(await readWaiting(db, fence ?? '', 10)).toHaveLength(1);
    expect(Number(fence)).toBeGreaterThan(Number(old));
    expect(await first.hold()).toBeNull();
    await first.release();
    expect(await readWaiting(db, fence ?? '', 10)).toHaveLength(1);
  });
});
