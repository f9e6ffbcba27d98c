import { sql } from 'kysely';
import { enqueueJobs } from '@stowage/common/jobs/bulk';
import type { BulkJob } from '@stowage/common/jobs/bulk';
import { dueNow } from '@stowage/common/jobs/enqueue';
import type { MessageInitShape } from '@bufbuild/protobuf';
import type {
  ClaimBlobRemovalRequest,
  ClaimBlobRemovalResponseSchema,
  ForgetReplicaRequest,
} from '@stowage/proto/stowage/catalog/v1/content';
import { replicaColumns, replicaMessage } from './replicas.ts';
import type { ReplicaRow } from './replicas.ts';
import type { Trx } from './nodes.ts';

/** Days of them: nobody else comes for what lies on a backend that is away. */
export const removalAttempts = 1_000;

/** A blob, and when it may be removed. */
interface Removable {
  id: string;
  delete_after: Date;
}

function removalOf({ id, delete_after: runAfter }: Removable): BulkJob {
  return { params: { blob_id: id }, runAfter, dedupeKey: id };
}

/**
 * Marks those of the blobs that no node refers to (any more) for removal after the grace time, and queues it. Called in
 * the transaction that deleted the nodes.
 */
export async function releaseBlobs(trx: Trx, blobIds: readonly string[], graceMs: number): Promise<void> {
  if (blobIds.length === 0) return;
  const { rows } = await sql<Removable>`
    update catalog.blobs b set delete_after = now() + ${graceMs} * interval '1 ms'
    where id = any(${blobIds}::uuid[]) and not exists (select from catalog.nodes n where n.blob_id = b.id)
    returning id, delete_after`.execute(trx);
  await enqueueJobs(trx, 'remove_blob', rows.map(removalOf), removalAttempts);
}

/** How long after it was due a removal is asked for again: nothing may be trying it any more. */
const lateMs = 600_000;
const lateAtOnce = 1_000;

/**
 * Queues again the removal of blobs that wait for it so long that their jobs may have been cancelled, or given up; one that
 * is pending stays the only one. Those that wait longest come first, and wait anew.
 */
export async function requeueRemovals(trx: Trx): Promise<void> {
  const { rows } = await sql<Removable>`
    update catalog.blobs b set delete_after = ${dueNow} where id in (
      select id from catalog.blobs where delete_after < now() - ${lateMs} * interval '1 ms'
      order by delete_after limit ${lateAtOnce} for update skip locked)
    returning id, delete_after`.execute(trx);
  await enqueueJobs(trx, 'remove_blob', rows.map(removalOf), removalAttempts);
}

/**
 * Claims a blob for removal: its replicas are `removing` from now on. Answers none where a file refers to the blob or
 * its grace time is not over. A blob with no replicas left is deleted. For a while from now on an import waits, which may
 * want the content again: bytes are removed within that time or under a new claim.
 */
export async function claimBlobRemoval(
  trx: Trx,
  request: ClaimBlobRemovalRequest,
): Promise<MessageInitShape<typeof ClaimBlobRemovalResponseSchema>> {
  const { blobId } = request;
  if (!(await lockUnreferenced(trx, blobId))) return { replicas: [] };
  const { rows } = await sql<ReplicaRow>`
    update catalog.replicas r set state = 'removing', removing_since = now() from registry.backend_names names
    where r.blob_id = ${blobId} and names.id = r.backend_id
    returning ${replicaColumns}`.execute(trx);
  if (rows.length === 0) await sql`delete from catalog.blobs where id = ${blobId}`.execute(trx);
  return { replicas: rows.map(replicaMessage) };
}

/** Forgets a replica that was claimed and whose bytes are gone, and with the last one the blob. Repeatable. */
export async function forgetReplica(trx: Trx, request: ForgetReplicaRequest): Promise<Record<string, never>> {
  const { blobId, backendId } = request;
  const unreferenced = await lockUnreferenced(trx, blobId);
  await sql`
    delete from catalog.replicas
    where blob_id = ${blobId} and backend_id = ${backendId} and state = 'removing'`.execute(trx);
  if (unreferenced) {
    await sql`
      delete from catalog.blobs b where id = ${blobId}
        and not exists (select from catalog.replicas r where r.blob_id = b.id)`.execute(trx);
  }
  return {};
}

async function lockUnreferenced(trx: Trx, blobId: string): Promise<boolean> {
  // A statement of its own, so that the next one sees what the lock had to wait for.
  await sql`select from catalog.blobs where id = ${blobId} for update`.execute(trx);
  const { rows } = await sql`
    select from catalog.blobs b where id = ${blobId} and delete_after <= now()
      and not exists (select from catalog.nodes n where n.blob_id = b.id)`.execute(trx);
  return rows.length > 0;
}
