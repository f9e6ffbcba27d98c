import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { Readable } from 'node:stream';
import type { ClientBase } from 'pg';
import { newId, rootDirectoryId } from '@stowage/common/ids';
import type { CallContext } from '@stowage/common/rpc/context';
import { stagedTable } from '../document/staged-tables.ts';
import { keepPlan } from '../plan/plans.ts';
import { stateDigest } from '../plan/state-digest.ts';
import { importPlan } from './import-plan.ts';
import type { StateBefore } from './import-plan.ts';
import { addDirectory, addFile, snapshotOf, stageLive, startTestMetadata } from './test-import.ts';
import { Turns } from './turns.ts';
import type { TestMetadata } from './test-import.ts';

let system: TestMetadata;
beforeAll(async () => {
  system = await startTestMetadata();
});
afterAll(() => system.close());

const userId = newId();
const turns = new Turns(30_000);
const documentSha256 = 'ab'.repeat(32);
const events: string[] = [];
let directory: string;

beforeEach(async () => {
  events.length = 0;
  await system.admin.query('update placement.removal_hold set removals_held_until = null');
  directory = await addDirectory(system.admin, newId());
  await addFile(system.admin, { name: 'kept', parentId: directory, backendId: system.backendId });
});

/** A plan of the metadata as they are, with one directory renamed. */
async function plan(name = newId()): Promise<{ token: string; number: number; name: string }> {
  const number = await stageLive(system.database);
  const { bulk } = system.database;
  await bulk.query(`update ${stagedTable(number, 'nodes')} set name = $2, version = version + 1 where id = $1`, [
    directory,
    name,
  ]);
  const client = await bulk.connect();
  try {
    const made = await keepPlan(client, {
      userId,
      documentSha256,
      stateDigest: await stateDigest(client),
      stagedNumber: number,
      counts: { directories: 2, files: 1 },
      knownBackends: [system.backendId],
      instanceId: null,
    });
    return { token: made.token, number, name };
  } finally {
    client.release();
  }
}

interface Said {
  confirmReplace?: unknown;
  validationToken?: unknown;
  more?: object;
}

type Faults = Partial<StateBefore>;

function run(
  said: Said,
  more: { confirm?: boolean; stopping?: AbortSignal; faults?: Faults; signal?: AbortSignal; user?: string } = {},
) {
  const { confirm, faults, signal = never(), stopping = never(), user = userId } = more;
  const { confirmReplace = true, validationToken = null, more: rest = {} } = said;
  const body = {
    ...rest,
    ...(confirmReplace === null ? {} : { confirm_replace: confirmReplace }),
    ...(validationToken === null ? {} : { validation_token: validationToken }),
  };
  const actor = { userId: user, username: 'admin', role: 'admin' } as const;
  const context: CallContext = { requestId: 'test', actor, idempotency: null, signal };
  const before: StateBefore = {
    write: async () => {
      await system.database.bulk.query('select');
      events.push('written');
      return { exportId: newId() };
    },
    keep: async () => void events.push('kept'),
    drop: async () => void events.push('dropped'),
    ...faults,
  };
  const needs = { bulk: system.database.bulk, turns, limit: 1e9, before, stopping };
  return importPlan(
    needs,
    { gzip: false, ...(confirm === undefined ? {} : { confirmReplace: confirm }) },
    Readable.from([Buffer.from(JSON.stringify(body))]),
    context,
  );
}

function never(): AbortSignal {
  return new AbortController().signal;
}

async function nameNow(): Promise<string> {
  const { rows } = await system.admin.query(`select name from catalog.nodes where id = $1`, [directory]);
  return rows[0].name;
}

test('an import brings what was planned, tells of it, and spends the token', async () => {
  const { token, name, number } = await plan();
  const answer = await run({ validationToken: token });
  expect(await nameNow()).toBe(name);
  expect(answer.imported).toEqual(
    expect.arrayContaining([
      { section: 'directories', count: 2n },
      { section: 'policies', count: 0n },
    ]),
  );
  expect(answer.job).toMatchObject({ kind: 'full_reconcile', state: 'pending', params: { reason: 'import' } });
  const { rows } = await system.admin.query(`select kind from jobs.jobs where id = $1`, [answer.job?.id]);
  expect(rows).toEqual([{ kind: 'full_reconcile' }]);
  expect(events).toEqual(['written', 'kept']);
  const left = await system.admin.query(`select to_regclass($1) as staged`, [stagedTable(number, 'nodes')]);
  expect(left.rows).toEqual([{ staged: null }]);
  await expect(run({ validationToken: token })).rejects.toMatchObject({ code: 'plan_stale' });
});

describe('what is refused leaves all as it is, and the token good', () => {
  test.each<[string, string, Said, boolean | undefined]>([
    ['not confirmed', 'confirmation_required', { confirmReplace: null }, undefined],
    ['false in the body', 'confirmation_required', { confirmReplace: false }, true],
    ['false in the address', 'confirmation_required', {}, false],
    ['a confirmation that is no boolean', 'validation_failed', { confirmReplace: 'true' }, true],
    ['another document', 'plan_stale', { more: { document: {} } }, undefined],
  ])('%s', async (_what, code, said, confirm) => {
    const { token, name } = await plan();
    const before = await snapshotOf(system.admin);
    const more = confirm === undefined ? {} : { confirm };
    await expect(run({ validationToken: token, ...said }, more)).rejects.toMatchObject({ code });
    expect(await snapshotOf(system.admin)).toEqual(before);
    expect(events).toEqual([]);
    await run({ validationToken: token });
    expect(await nameNow()).toBe(name);
  });

  test('another user', async () => {
    const { token } = await plan();
    await expect(run({ validationToken: token }, { user: newId() })).rejects.toMatchObject({ code: 'plan_stale' });
    await run({ validationToken: token });
  });

  test('no token, and one that was made up', async () => {
    await expect(run({})).rejects.toMatchObject({ code: 'validation_failed' });
    await expect(run({ validationToken: 5 })).rejects.toMatchObject({ code: 'validation_failed' });
    await expect(run({ validationToken: 'x' })).rejects.toMatchObject({ code: 'plan_stale' });
  });

  test('a failure in the midst of it', async () => {
    const { token, name, number } = await plan();
    const before = await snapshotOf(system.admin);
    const faults: Faults = {
      keep: async () => {
        throw new Error('boom');
      },
    };
    await expect(run({ validationToken: token }, { faults })).rejects.toThrow('boom');
    expect(await snapshotOf(system.admin)).toEqual(before);
    expect(events).toEqual(['written', 'dropped']);
    const { rows } = await system.admin.query(
      `select removals_held_until < now() + interval '16 minutes' as soon_over from placement.removal_hold`,
    );
    expect(rows).toEqual([{ soon_over: true }]);
    await run({ validationToken: token });
    expect(await nameNow()).toBe(name);
    expect(number).toBeGreaterThan(0);
  });

  test('a caller that goes away before it begins to write', async () => {
    const { token } = await plan();
    const gone = new AbortController();
    const faults: Faults = {
      write: async () => {
        gone.abort();
        return { exportId: newId() };
      },
    };
    await expect(run({ validationToken: token }, { faults, signal: gone.signal })).rejects.toThrow();
    expect(events).toEqual(['dropped']);
    await run({ validationToken: token });
  });
});

test('a caller that goes away later leaves it to go on', async () => {
  const { token, name } = await plan();
  const gone = new AbortController();
  const faults: Faults = { keep: async () => gone.abort() };
  await run({ validationToken: token }, { faults, signal: gone.signal });
  expect(await nameNow()).toBe(name);
});

test.each([
  [
    'a renamed directory',
    () => system.admin.query(`update catalog.nodes set version = version + 1 where id = $1`, [directory]),
  ],
  ['a new file', () => addFile(system.admin, { name: newId(), backendId: system.backendId })],
  ['a policy', () => system.admin.query(`update placement.policies set version = version + 1`)],
  ['a backend', () => system.admin.query(`update registry.backends set version = version + 1`)],
])('a plan does not outlive a change: %s', async (_what, change) => {
  const { token } = await plan();
  await change();
  const before = await snapshotOf(system.admin);
  await expect(run({ validationToken: token })).rejects.toMatchObject({ code: 'plan_stale' });
  expect(await snapshotOf(system.admin)).toEqual(before);
  expect(events).toEqual(['written', 'dropped']);
});

describe('a removal that was claimed', () => {
  const claim = async (agoMs: number): Promise<Date> => {
    const { rows } = await system.admin.query(
      `update catalog.replicas set state = 'removing', removing_since = now() - $1 * interval '1 ms'
       where blob_id = (select max(blob_id::text)::uuid from catalog.replicas) returning removing_since as at`,
      [agoMs],
    );
    return rows[0].at;
  };

  test('is waited for until it can not be under way any more', async () => {
    const claimedAt = await claim(119_000);
    const { token } = await plan();
    await run({ validationToken: token });
    const { rows } = await system.admin.query(
      `
      select claimed.at + interval '120 s' <= max(j.created_at) as waited
      from jobs.jobs j, (select $1::timestamptz as at) claimed group by claimed.at`,
      [claimedAt],
    );
    expect(rows).toEqual([{ waited: true }]);
  });

  test('in the last moment refuses the import, and spends nothing', async () => {
    const { token, name } = await plan();
    const write = async (): Promise<{ exportId: string }> => {
      await claim(0);
      return { exportId: newId() };
    };
    await expect(run({ validationToken: token }, { faults: { write } })).rejects.toMatchObject({
      code: 'unavailable',
    });
    await system.admin.query(`update catalog.replicas set removing_since = null`);
    await run({ validationToken: token });
    expect(await nameNow()).toBe(name);
  });
});

test('a process that stops gives up what is not committed', async () => {
  const { token, name } = await plan();
  const before = await snapshotOf(system.admin);
  const stop = new AbortController();
  const keep = async (client: ClientBase): Promise<void> => {
    const asleep = client.query('select pg_sleep(600)');
    stop.abort();
    await asleep;
  };
  const stopped = run({ validationToken: token }, { faults: { keep }, stopping: stop.signal });
  await expect(stopped).rejects.toMatchObject({ code: 'unavailable' });
  expect(await snapshotOf(system.admin)).toEqual(before);
  await run({ validationToken: token });
  expect(await nameNow()).toBe(name);
});

test('of several at once, of one plan and of two, one wins', async () => {
  const [one, other] = [await plan(), await plan()];
  const tokens = [one.token, one.token, other.token, other.token, one.token, other.token];
  const results = await Promise.allSettled(tokens.map((validationToken) => run({ validationToken })));
  expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
  for (const result of results) {
    if (result.status === 'rejected') expect(result.reason).toMatchObject({ code: 'plan_stale' });
  }
});

test('readers go on meanwhile and see what was; writers wait', async () => {
  const { token, name } = await plan();
  const before = await nameNow();
  const { promise: reached, resolve: reach } = Promise.withResolvers<void>();
  const { promise: goOn, resolve: letGo } = Promise.withResolvers<void>();
  const faults: Faults = {
    keep: async () => {
      reach();
      await goOn;
    },
  };
  const importing = run({ validationToken: token }, { faults });
  await reached;
  expect(await nameNow()).toBe(before);
  const writing = system.admin.connect().then(async (client) => {
    await client.query(`set lock_timeout = '100ms'`);
    const insert = `insert into catalog.nodes (id, parent_id, kind, name) values ($1, $2, 'directory', $1::text)`;
    return client.query(insert, [newId(), rootDirectoryId]).finally(() => client.release(true));
  });
  await expect(writing).rejects.toMatchObject({ code: '55P03' });
  letGo();
  await importing;
  expect(await nameNow()).toBe(name);
});
