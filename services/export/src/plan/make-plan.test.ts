import { create } from '@bufbuild/protobuf';
import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { newId } from '@stowage/common/ids';
import type { CallContext } from '@stowage/common/rpc/context';
import { JudgeBackendsResponseSchema } from '@stowage/proto/stowage/backend_registry/v1/backend';
import { PlanRestoreRequestSchema } from '@stowage/proto/stowage/export/v1/export';
import { exportDocument } from '../snapshot/export-document.ts';
import { planRestore } from './make-plan.ts';
import type { PlanNeeds } from './make-plan.ts';
import { takePlan } from './plans.ts';
import { localId, startTestPlans } from './test-plans.ts';
import type { TestPlans } from './test-plans.ts';

let plans: TestPlans;
let document: Buffer;
const userId = newId();

beforeAll(async () => {
  plans = await startTestPlans();
  document = await buffer(exportDocument(plans.bulk));
});
afterAll(() => plans.close());
beforeEach(() => plans.admin.query('delete from export.plans'));

type Judge = PlanNeeds['backends']['judgeBackends'];

/** As backend-registry would say it of backends that all are here. */
const allKnown: Judge = async ({ backends = [] }) =>
  create(JudgeBackendsResponseSchema, { judgements: backends.map(({ id = '' }) => ({ id, known: true })) });

function plan(judgeBackends: Judge = allKnown, signal = new AbortController().signal): ReturnType<typeof planRestore> {
  const needs = { bulk: plans.bulk, backends: { judgeBackends }, limit: 2 ** 30, graceMs: 1_000 };
  const actor = { userId, username: 'ann', role: 'admin' as const };
  const context: CallContext = { requestId: 'request-1', actor, idempotency: null, signal };
  return planRestore(needs, create(PlanRestoreRequestSchema), Readable.from([document]), context);
}

async function tablesOfDocuments(): Promise<number> {
  const { rows } = await plans.admin.query<{ count: number }>(
    `select count(*)::int as count from pg_class where relname ~ '^staged_[0-9]+_' and relkind = 'r'`,
  );
  return rows[0]?.count ?? 0;
}

test('a plan is kept with what the import goes by', async () => {
  const { validationToken = '', validation } = await plan(async (request, context) => {
    const { judgements } = await allKnown(request, context);
    const [first, ...others] = judgements.filter(({ id }) => id === localId);
    return create(JudgeBackendsResponseSchema, { judgements: first ? [first, ...others] : [] });
  });
  const { rows } = await plans.admin.query<{ id: string }>('select id from export.instance');
  const kept = await plans.run((client) => takePlan(client, { token: validationToken, userId }));
  expect(kept).toMatchObject({
    documentSha256: validation?.sha256,
    counts: { directories: 6, files: 20, blobs: 20, replicas: 40, backends: 2, policies: 2 },
    knownBackends: [localId],
    instanceId: rows[0]?.id,
  });
});

test.each<[string, Judge]>([
  [
    'a blocker',
    async ({ backends = [] }) =>
      create(JudgeBackendsResponseSchema, {
        judgements: backends.map(({ id = '' }) => ({ id, faults: [{ code: 'default_elsewhere' }] })),
      }),
  ],
  ['no answer of backend-registry', () => Promise.reject(new Error('it is away'))],
])('after %s there is no plan and no document', async (_what, judge) => {
  const before = await tablesOfDocuments();
  const token = await plan(judge).then(
    ({ validationToken }) => validationToken,
    () => undefined,
  );
  expect(token).toBeUndefined();
  expect(await tablesOfDocuments()).toBe(before);
  expect((await plans.admin.query('select from export.plans')).rowCount).toBe(0);
});

test('a client that went away leaves no plan and no document behind', async () => {
  const before = await tablesOfDocuments();
  const gone = new AbortController();
  const leave: Judge = async (request, context) => {
    gone.abort();
    return allKnown(request, context);
  };
  await expect(plan(leave, gone.signal)).rejects.toThrow();
  expect(await tablesOfDocuments()).toBe(before);
  expect((await plans.admin.query('select from export.plans')).rowCount).toBe(0);
});

test('the changes are those of the state that the digest is of, whatever is written meanwhile', async () => {
  const late: Judge = async (request, context) => {
    await plans.admin.query(`update catalog.nodes set version = version + 1 where name = 'file 1'`);
    return allKnown(request, context);
  };
  const { changes = [] } = await plan(late);
  expect(changes.map(({ update }) => update)).toEqual([0n, 0n, 0n, 0n, 0n, 0n]);
  expect((await plan()).changes?.map(({ update }) => update)).toEqual([0n, 5n, 0n, 0n, 0n, 0n]);
});
