import { sql } from 'kysely';
import type { QueryExecutorProvider } from 'kysely';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { validationError } from '@stowage/common/errors';
import { enqueueJob } from '@stowage/common/jobs/enqueue';
import type {
  GetBackendUsageResponseSchema,
  ReportReplicaRequest,
  SettleReplicaRequest,
} from '@stowage/proto/stowage/catalog/v1/content';
import { ReplicaState } from '@stowage/proto/stowage/catalog/v1/node';
import type { ReplicaSchema } from '@stowage/proto/stowage/catalog/v1/node';
import { timestamp } from './node-message.ts';
import type { Trx } from './nodes.ts';

/** The states of a replica as messages have them. */
export const replicaStates = {
  available: ReplicaState.AVAILABLE,
  unverified: ReplicaState.UNVERIFIED,
  copying: ReplicaState.COPYING,
  corrupt: ReplicaState.CORRUPT,
  missing: ReplicaState.MISSING,
  removing: ReplicaState.REMOVING,
} as const;

/** A row of catalog.replicas, with its backend's name. */
export interface ReplicaRow {
  backend_id: string;
  backend_name: string;
  key: string;
  state: keyof typeof replicaStates;
  verified_at: Date | null;
}

/** The columns of ReplicaRow, from `catalog.replicas r` and `registry.backend_names names`. */
export const replicaColumns = sql`r.backend_id, names.name as backend_name, r.key, r.state, r.verified_at`;

/** All replicas of a node's blob in one column, the best to read from first. */
export interface WithReplicas {
  replicas: (Omit<ReplicaRow, 'verified_at'> & { verified_at: string | null })[];
}

/** WithReplicas, for loadNodes. A backend that is unhealthy is tried when no other is left: each try may take seconds. */
export const replicasOfNode = sql<WithReplicas>`, array(
    select json_build_object('backend_id', r.backend_id, 'backend_name', standing.name, 'key', r.key, 'state', r.state,
      'verified_at', r.verified_at)
    from catalog.replicas r join registry.backend_standing standing on standing.id = r.backend_id
    where r.blob_id = n.blob_id
    order by standing.health_status = 'unhealthy', array_position(array['available', 'unverified'], r.state),
      not standing.enabled, r.created_at, r.backend_id) as replicas`;

export function replicasIn({ replicas }: WithReplicas): ReplicaRow[] {
  return replicas.map((row) => ({ ...row, verified_at: row.verified_at === null ? null : new Date(row.verified_at) }));
}

/** Whether bytes may be served from it. */
export function isReadable(replica: ReplicaRow): boolean {
  return replica.state === 'available' || replica.state === 'unverified';
}

export function replicaMessage(row: ReplicaRow): MessageInitShape<typeof ReplicaSchema> {
  return {
    backendId: row.backend_id,
    backendName: row.backend_name,
    key: row.key,
    state: replicaStates[row.state],
    ...(row.verified_at ? { verifiedAt: timestamp(row.verified_at) } : {}),
  };
}

/** Notes that a replica could not be read as it should, and queues a look at it. Throws `validation_failed`. */
export async function reportReplica(trx: Trx, request: ReportReplicaRequest): Promise<Record<string, never>> {
  const { blobId, backendId } = request;
  const state = stateOf(request.state, ['corrupt', 'missing']);
  const { rows } = await sql<{ key: string; size: string; sha256: string | null }>`
    update catalog.replicas r set state = ${state} from catalog.blobs b
    where r.blob_id = ${blobId} and r.backend_id = ${backendId} and r.state in ('available', 'unverified')
      and b.id = r.blob_id
    returning r.key, b.size, encode(b.sha256, 'hex') as sha256`.execute(trx);
  const [reported] = rows;
  if (!reported) return {};
  const { key, size, sha256 } = reported;
  await enqueueJob(trx, {
    kind: 'verify_blob',
    params: { blob_id: blobId, backend_id: backendId, key, size: Number(size), sha256 },
    dedupeKey: `${blobId}:${backendId}`,
  });
  return {};
}

/** Notes what reading a replica from end to end showed; `verified_at` stays the time when a reading began that found it good. */
export async function settleReplica(trx: Trx, request: SettleReplicaRequest): Promise<Record<string, never>> {
  const state = stateOf(request.state, ['available', 'corrupt', 'missing']);
  await sql`
    update catalog.replicas set state = ${state},
      verified_at = case when ${state} = 'available'
        then greatest(verified_at, now() - ${Number(request.readAgoMs)} * interval '1 ms') else verified_at end
    where blob_id = ${request.blobId} and backend_id = ${request.backendId}
      and state in ('available', 'unverified', 'corrupt', 'missing')`.execute(trx);
  return {};
}

function stateOf<S extends ReplicaRow['state']>(state: ReplicaState, allowed: readonly S[]): S {
  const found = allowed.find((name) => replicaStates[name] === state);
  if (!found) throw validationError([{ pointer: '/state', detail: `must be one of ${allowed.join(', ')}` }]);
  return found;
}

/** Counts replicas, in whatever state, and their bytes for each backend that holds any. */
export async function backendUsage(
  db: QueryExecutorProvider,
): Promise<MessageInitShape<typeof GetBackendUsageResponseSchema>> {
  const { rows } = await sql<{ backend_id: string; replicas: string; bytes: string }>`
    select backend_id, replicas, bytes from catalog.backend_usage`.execute(db);
  return {
    usage: rows.map((row) => ({
      backendId: row.backend_id,
      replicas: BigInt(row.replicas),
      bytes: BigInt(row.bytes),
    })),
  };
}
