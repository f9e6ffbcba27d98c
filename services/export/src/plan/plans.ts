import { createHash, randomBytes } from 'node:crypto';
import type { ClientBase } from 'pg';
import { AppError } from '@stowage/common/errors';
import { newId } from '@stowage/common/ids';
import { areWhole, dropStagedTables } from '../document/staged-tables.ts';

/** Plans that are kept at a time: each has a whole document in tables of its own. Of more, the oldest go. */
export const mostPlans = { ofUser: 5, inAll: 20 } as const;
const lifeMinutes = 60;

/** What a plan is bound to, and where its document is. */
export interface NewPlan {
  userId: string;
  /** Lower-case hexadecimal. */
  documentSha256: string;
  stateDigest: string;
  stagedNumber: number;
  /** Records of each section. */
  counts: Readonly<Record<string, number>>;
  /** Backends that keep their secrets, and may come in enabled. */
  knownBackends: readonly string[];
  /** The installation that the document describes. */
  instanceId: string | null;
}

/** A plan that may be imported while the metadata still have its digest. */
export interface Plan extends NewPlan {
  id: string;
  expiresAt: Date;
}

/**
 * Keeps a plan and gives its token, which is known to nobody else: only its digest is kept. Run it in a transaction. What
 * has expired goes, and the oldest where there are too many.
 */
export async function keepPlan(client: ClientBase, plan: NewPlan): Promise<{ token: string; expiresAt: Date }> {
  await client.query(`select pg_advisory_xact_lock(hashtext('stowage plans'))`);
  const token = randomBytes(32).toString('base64url');
  const { rows } = await client.query<{ expires_at: Date }>(
    `insert into export.plans
       (id, user_id, token_sha256, document_sha256, state_digest, staged_number, counts, known_backends,
        instance_id, expires_at)
     values ($1, $2, $3, decode($4, 'hex'), $5, $6, $7, $8, $9, now() + $10 * interval '1 minute')
     returning expires_at`,
    [
      newId(),
      plan.userId,
      digestOf(token),
      plan.documentSha256,
      plan.stateDigest,
      plan.stagedNumber,
      JSON.stringify(plan.counts),
      plan.knownBackends,
      plan.instanceId,
      lifeMinutes,
    ],
  );
  const [made] = rows;
  if (!made) throw new Error('the plan was not kept');
  await dropSurplusPlans(client);
  return { token, expiresAt: made.expires_at };
}

/**
 * Locks the plan of a token until the end of the transaction, and gives it. Throws `plan_stale` where there is none that
 * this user may spend; whose plan another one is, or was, it does not tell.
 */
export async function takePlan(
  client: ClientBase,
  { token, userId }: { token: string; userId: string },
): Promise<Plan> {
  const digest = digestOf(token);
  const { rows } = await client.query<PlanRow>(
    `select id, user_id, encode(document_sha256, 'hex') as document_sha256, state_digest, staged_number, counts,
       known_backends, instance_id, expires_at, expires_at <= now() as expired
     from export.plans where token_sha256 = $1 and user_id = $2 for update skip locked`,
    [digest, userId],
  );
  const [row] = rows;
  if (!row) return refuse((await isThere(client, digest, userId)) ? reasons.busy : reasons.none);
  if (row.expired) return refuse(reasons.expired);
  const stagedNumber = Number(row.staged_number);
  if (!(await areWhole(client, stagedNumber))) return refuse(reasons.lost);
  return {
    id: row.id,
    userId: row.user_id,
    documentSha256: row.document_sha256,
    stateDigest: row.state_digest,
    stagedNumber,
    counts: row.counts,
    knownBackends: row.known_backends,
    instanceId: row.instance_id,
    expiresAt: row.expires_at,
  };
}

/** Ends a plan in the transaction of its import, with the document that was kept for it. */
export async function spendPlan(client: ClientBase, plan: Pick<Plan, 'id' | 'stagedNumber'>): Promise<void> {
  await client.query(`delete from export.plans where id = $1`, [plan.id]);
  await dropStagedTables(client, plan.stagedNumber);
}

/** A plan whose metadata have changed since. */
export function changedMeanwhile(): AppError {
  return planStale('The metadata have changed since this plan was made.');
}

/** Drops plans that have expired or are too many, but for those that an import holds. Run it in a transaction. */
export async function dropSurplusPlans(client: ClientBase): Promise<void> {
  const { rows } = await client.query<{ id: string; staged_number: string }>(
    `select id, staged_number from export.plans
     where expires_at <= now() or id in (
       select id from (
         select id, row_number() over (partition by user_id order by id desc) as of_user,
           row_number() over (order by id desc) as in_all
         from export.plans where expires_at > now()) ranked
       where of_user > $1 or in_all > $2)
     order by id for update skip locked`,
    [mostPlans.ofUser, mostPlans.inAll],
  );
  for (const { id, staged_number: number } of rows) await spendPlan(client, { id, stagedNumber: Number(number) });
}

const again = 'Make a plan again.';
const reasons = {
  none: `The token is of no plan: it is spent, has expired or was never given. ${again}`,
  busy: 'This plan is being imported just now.',
  expired: `This plan has expired. ${again}`,
  lost: `The document of this plan was lost as the database was restarted. ${again}`,
} as const;

async function isThere(client: ClientBase, digest: Buffer, userId: string): Promise<boolean> {
  const { rowCount } = await client.query(`select from export.plans where token_sha256 = $1 and user_id = $2`, [
    digest,
    userId,
  ]);
  return rowCount === 1;
}

function refuse(reason: string): never {
  throw planStale(reason);
}

function planStale(detail: string): AppError {
  return new AppError('plan_stale', detail);
}

function digestOf(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}

interface PlanRow {
  id: string;
  user_id: string;
  document_sha256: string;
  state_digest: string;
  staged_number: string;
  counts: Record<string, number>;
  known_backends: string[];
  instance_id: string | null;
  expires_at: Date;
  expired: boolean;
}
