import { sql } from 'kysely';
import type { Transaction } from 'kysely';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { violatedConstraint } from '@stowage/common/database/database-error';
import { AppError, validationError } from '@stowage/common/errors';
import type { FieldError } from '@stowage/common/errors';
import { queueFullReconcile } from '@stowage/common/jobs/full-reconcile';
import type {
  DeletePolicyRequest,
  DeletePolicyResponseSchema,
  PutPolicyRequest,
  PutPolicyResponseSchema,
} from '@stowage/proto/stowage/placement/v1/policy';
import { loadBackends } from './backend-standing.ts';
import { defaultClass, noPolicy, ownPolicy, policyMessage } from './policies.ts';
import type { Tables } from './tables.ts';

type Trx = Transaction<Tables>;

const classPattern = /^[a-z][a-z0-9_-]{0,62}$/;
/** All of them fit one answer, and one page of the planner's memory. */
const policiesMax = 1_000;
const backendsMax = 100;

/**
 * Saves a policy and queues exactly one full reconcile, in the caller's transaction. Throws `validation_failed`,
 * `precondition_failed`, `state_conflict`.
 */
export async function putPolicy(
  trx: Trx,
  request: PutPolicyRequest,
): Promise<MessageInitShape<typeof PutPolicyResponseSchema>> {
  const { fileClass, backendIds, replicas, syncReplicas = 1 } = request;
  if (!classPattern.test(fileClass)) {
    throw validationError([{ pointer: '/file_class', detail: 'must match [a-z][a-z0-9_-]{0,62}' }]);
  }
  requireFit(await copiesFaults(trx, { backendIds, replicas, syncReplicas }));
  const present = await lockPolicy(trx, fileClass, request.ifMatch);
  if (present === null) await requireRoom(trx);
  await sql`
    insert into placement.policies as p (file_class, replicas, sync_replicas) values (${fileClass}, ${replicas}, ${syncReplicas})
    on conflict (file_class) do update set replicas = excluded.replicas, sync_replicas = excluded.sync_replicas,
      version = p.version + 1, updated_at = now()`.execute(trx);
  await sql`delete from placement.policy_backends where file_class = ${fileClass}`.execute(trx);
  await insertBackends(trx, fileClass, backendIds);
  const policy = await ownPolicy(trx, fileClass);
  const job = await queueFullReconcile(trx, {
    reason: 'policy_saved',
    file_class: fileClass,
    policy_version: Number(policy.version),
  });
  return { policy: policyMessage(policy), job };
}

/** Removes a policy and queues one full reconcile. Throws `not_found`, `state_conflict`, `precondition_failed`. */
export async function deletePolicy(
  trx: Trx,
  { fileClass, ifMatch }: DeletePolicyRequest,
): Promise<MessageInitShape<typeof DeletePolicyResponseSchema>> {
  if (fileClass === defaultClass) throw new AppError('state_conflict', 'The policy “default” always exists.');
  if ((await lockPolicy(trx, fileClass, undefined)) === null) throw noPolicy();
  await lockPolicy(trx, fileClass, ifMatch);
  await sql`delete from placement.policies where file_class = ${fileClass}`.execute(trx);
  return { job: await queueFullReconcile(trx, { reason: 'policy_removed', file_class: fileClass }) };
}

export interface Copies {
  backendIds: readonly string[];
  replicas: number;
  syncReplicas: number;
}

/** What is wrong with a wish for copies: backends that are unknown or repeated, counts that do not fit. */
export async function copiesFaults(
  db: Parameters<typeof loadBackends>[0],
  { backendIds, replicas, syncReplicas }: Copies,
): Promise<FieldError[]> {
  const known = await loadBackends(db);
  const faults: FieldError[] = [];
  if (backendIds.length === 0 || backendIds.length > backendsMax)
    faults.push({ pointer: '/backends', detail: `must be 1 to ${backendsMax} backends` });
  for (const [index, id] of backendIds.entries()) {
    const pointer = `/backends/${index}`;
    if (!known.has(id)) faults.push({ pointer, detail: 'is not a backend' });
    else if (backendIds.indexOf(id) < index) faults.push({ pointer, detail: 'is named twice' });
  }
  if (!(replicas >= 1 && replicas <= backendIds.length))
    faults.push({ pointer: '/replicas', detail: 'must be from 1 to the number of backends' });
  if (!(syncReplicas >= 1 && syncReplicas <= replicas))
    faults.push({ pointer: '/sync_replicas', detail: 'must be from 1 to replicas' });
  return faults;
}

export function requireFit(faults: FieldError[]): void {
  if (faults.length > 0) throw validationError(faults);
}

/** Holds a policy against other changes and gives its version, null where there is none. Throws `precondition_failed`. */
async function lockPolicy(
  trx: Trx,
  fileClass: string,
  ifMatch: { versions: readonly bigint[] } | undefined,
): Promise<bigint | null> {
  const { rows } = await sql<{ version: string }>`
    select version from placement.policies where file_class = ${fileClass} for update`.execute(trx);
  const version = rows[0] ? BigInt(rows[0].version) : null;
  if (ifMatch && (version === null || !ifMatch.versions.includes(version))) {
    const detail =
      version === null
        ? 'There is no such policy by now.'
        : `The policy is at version ${version} by now: read it again.`;
    throw new AppError('precondition_failed', detail, {
      members: { version: version === null ? null : Number(version) },
    });
  }
  return version;
}

async function requireRoom(trx: Trx): Promise<void> {
  const { rows } = await sql<{ count: string }>`select count(*) from placement.policies`.execute(trx);
  if (Number(rows[0]?.count) < policiesMax) return;
  throw new AppError('state_conflict', `There are ${policiesMax} policies already: remove one first.`);
}

async function insertBackends(trx: Trx, fileClass: string, backendIds: readonly string[]): Promise<void> {
  try {
    await sql`
      insert into placement.policy_backends (file_class, position, backend_id)
      select ${fileClass}, place - 1, id from unnest(${backendIds}::uuid[]) with ordinality as named (id, place)`.execute(
      trx,
    );
  } catch (error) {
    if (violatedConstraint(error) !== 'policy_backends_backend_id_fkey') throw error;
    throw validationError([{ pointer: '/backends', detail: 'names a backend that was deleted just now' }]);
  }
}
