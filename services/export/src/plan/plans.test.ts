import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { AppError } from '@stowage/common/errors';
import { newId } from '@stowage/common/ids';
import { createStagedTables, dropStagedTables, holdStaged, letGoStaged, markWhole } from '../document/staged-tables.ts';
import { dropLeftovers } from './drop-leftovers.ts';
import { keepPlan, mostPlans, spendPlan, takePlan } from './plans.ts';
import { localId, startTestPlans } from './test-plans.ts';
import type { TestPlans } from './test-plans.ts';

let plans: TestPlans;
const userId = newId();
beforeAll(async () => {
  plans = await startTestPlans();
});
afterAll(() => plans.close());
beforeEach(async () => {
  await plans.admin.query(`update export.plans set expires_at = now()`);
  await dropLeftovers(plans.bulk);
});

async function keep(owner = userId): Promise<{ token: string; number: number }> {
  const number = await plans.run(createStagedTables);
  await plans.run((client) => markWhole(client, number));
  const plan = {
    userId: owner,
    documentSha256: 'ab'.repeat(32),
    stateDigest: 'the state',
    stagedNumber: number,
    counts: { files: 3 },
    knownBackends: [localId],
    instanceId: null,
  };
  const { token } = await plans.run((client) => keepPlan(client, plan));
  return { token, number };
}

const take = (token: string, owner = userId): Promise<unknown> =>
  plans.run((client) => takePlan(client, { token, userId: owner }));

async function refusal(attempt: Promise<unknown>): Promise<string> {
  const error = await attempt.then(
    () => null,
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof AppError)) throw new Error('it was not refused');
  return `${error.code}: ${error.detail}`;
}

/** The numbers under which there are tables. */
async function staged(): Promise<number[]> {
  const { rows } = await plans.admin.query<{ number: string }>(
    `select distinct substring(relname from '^staged_([0-9]+)_')::bigint as number from pg_class
     where relnamespace = 'export'::regnamespace and relkind = 'r' and relname ~ '^staged_[0-9]+_' order by 1`,
  );
  return rows.map(({ number }) => Number(number));
}

test('a plan is taken as it was kept, by its user, as often as it is not spent', async () => {
  const { token, number } = await keep();
  expect(token).toMatch(/^[\w-]{43}$/);
  const expected = {
    id: expect.any(String),
    userId,
    documentSha256: 'ab'.repeat(32),
    stateDigest: 'the state',
    stagedNumber: number,
    counts: { files: 3 },
    knownBackends: [localId],
    instanceId: null,
    expiresAt: expect.any(Date),
  };
  expect(await take(token)).toEqual(expected);
  expect(await take(token)).toEqual(expected);
});

test('the token itself is kept nowhere', async () => {
  const { token } = await keep();
  const { rows } = await plans.admin.query(`select p::text as plan from export.plans p`);
  expect(JSON.stringify(rows)).not.toContain(token);
  expect(JSON.stringify(rows)).not.toContain(Buffer.from(token).toString('hex'));
});

test('a spent plan is gone with its document, and one whose import is undone is not', async () => {
  const { token, number } = await keep();
  const undone = plans.run(async (client) => {
    await spendPlan(client, await takePlan(client, { token, userId }));
    throw new Error('undone');
  });
  await expect(undone).rejects.toThrow('undone');
  expect(await staged()).toEqual([number]);
  await plans.run(async (client) => spendPlan(client, await takePlan(client, { token, userId })));
  expect(await staged()).toEqual([]);
  expect(await refusal(take(token))).toContain('plan_stale');
});

test('another user hears of a token what is heard of one that never was', async () => {
  const { token } = await keep();
  const made = await refusal(take('a'.repeat(43)));
  expect(made).toContain('plan_stale');
  expect(await refusal(take(token, newId()))).toBe(made);
  await plans.admin.query(`update export.plans set expires_at = now()`);
  expect(await refusal(take(token, newId()))).toBe(made);
  expect(await refusal(take(token))).toContain('expired');
});

test('a plan whose document was lost is stale', async () => {
  const { token, number } = await keep();
  // As after a crash of PostgreSQL, which empties unlogged tables.
  await plans.admin.query(`truncate export.staged_${number}_whole`);
  expect(await refusal(take(token))).toMatch(/plan_stale: .*lost/);
  await plans.run((client) => dropStagedTables(client, number));
  expect(await refusal(take(token))).toMatch(/plan_stale: .*lost/);
});

test('of two that take a plan at a time one has it, and the other is told so', async () => {
  const { token } = await keep();
  const first = plans.run(async (client) => {
    const plan = await takePlan(client, { token, userId });
    expect(await refusal(take(token))).toMatch(/plan_stale: .*just now/);
    await spendPlan(client, plan);
  });
  await first;
  expect(await refusal(take(token))).toMatch(/plan_stale: .*spent/);
});

test('too many plans: the oldest go, of a user and in all', async () => {
  const first = await keep();
  const stranger = await keep(newId());
  const mine = [];
  for (let count = 0; count < mostPlans.ofUser; count += 1) mine.push(await keep());
  expect(await refusal(take(first.token))).toContain('plan_stale');
  for (const { token } of mine) await take(token);
  expect(await staged()).toEqual([stranger, ...mine].map(({ number }) => number));
  for (let count = 0; count < mostPlans.inAll; count += 1) await keep(newId());
  expect(await staged()).toHaveLength(mostPlans.inAll);
  expect(await refusal(take(mine[0]?.token ?? ''))).toContain('plan_stale');
});

test('housekeeping drops what has expired and what a crash left, and leaves what is in use', async () => {
  const [kept, expired] = [await keep(), await keep()];
  await plans.admin.query(`update export.plans set expires_at = now() where staged_number = $1`, [expired.number]);
  await plans.run(createStagedTables);
  const forgotten = await plans.run(createStagedTables);
  await plans.run((client) => markWhole(client, forgotten));
  await plans.admin.query(`update export.staged_${forgotten}_whole set at = now() - interval '2 hours'`);
  const fresh = await plans.run(createStagedTables);
  await plans.run((client) => markWhole(client, fresh));
  const filler = await plans.bulk.connect();
  const beingFilled = await createStagedTables(filler, await holdStaged(filler));
  await Promise.all([dropLeftovers(plans.bulk), dropLeftovers(plans.bulk)]);
  expect(await staged()).toEqual([kept.number, fresh, beingFilled]);
  await letGoStaged(filler, beingFilled);
  filler.release();
  await dropLeftovers(plans.bulk);
  expect(await staged()).toEqual([kept.number, fresh]);
  await plans.run((client) => dropStagedTables(client, fresh));
});

test('a plan that is being imported is in nobody’s way, and is taken from no import', async () => {
  const { token, number } = await keep();
  await plans.run(async (client) => {
    await takePlan(client, { token, userId });
    for (let count = 0; count < mostPlans.ofUser; count += 1) await keep();
    await dropLeftovers(plans.bulk);
    expect(await staged()).toContain(number);
  });
  await dropLeftovers(plans.bulk);
  expect(await staged()).not.toContain(number);
});
