import { sql } from 'kysely';
import type { ClaimReplicaRemovalRequest, KeepReplicaRequest } from '@stowage/proto/stowage/catalog/v1/replica';
import type { Trx } from './nodes.ts';

interface Accepted {
  accepted: boolean;
}

/** Longer than any removal of bytes may take: what is kept, or copied anew, must not lose them to an earlier one. */
const removalMaxMs = 120_000;

/** Of `r`: no removal is under way. */
const isAtRest = sql`(r.state <> 'removing' or coalesce(r.removing_since <= now() - ${removalMaxMs} * interval '1 ms', true))`;

/**
 * Marks a surplus replica `removing`. Refused unless all that stay are good and freshly verified: they are locked
 * while that is looked at, so that of two claims, or of a claim and a bad report, the second sees the first. Refused too
 * while another removal of it may be under way, so that none reaches the backend after the replica was made anew.
 */
export async function claimReplicaRemoval(trx: Trx, request: ClaimReplicaRemovalRequest): Promise<Accepted> {
  const { blobId, backendId, verifiedWithinMs } = request;
  const staying = [...new Set(request.staying)];
  if (staying.length === 0 || staying.includes(backendId)) return { accepted: false };
  // A statement of its own, so that the next one sees what the lock had to wait for.
  await sql`
    select from catalog.replicas where blob_id = ${blobId} order by backend_id for update`.execute(trx);
  // Compared as text, so that in a new installation, not analysed yet, no index by backend is read for the few of a blob.
  const { rows } = await sql`
    update catalog.replicas r set state = 'removing', removing_since = now()
    where r.blob_id = ${blobId} and r.backend_id = ${backendId} and ${isAtRest} and ${staying.length}::bigint = (
      select count(*) from catalog.replicas s
      where s.blob_id = ${blobId} and s.backend_id::text = any(${staying}::text[]) and s.state = 'available'
        and s.verified_at >= now() - ${Number(verifiedWithinMs)} * interval '1 ms')
    returning r.blob_id`.execute(trx);
  return { accepted: rows.length > 0 };
}

/** Calls a removal off, unless it may still be under way, or the blob itself is to go. */
export async function keepReplica(trx: Trx, { blobId, backendId }: KeepReplicaRequest): Promise<Accepted> {
  const { rows } = await sql`
    update catalog.replicas r set state = 'unverified', removing_since = null
    from catalog.blobs b
    where b.id = ${blobId} and r.blob_id = b.id and r.backend_id = ${backendId} and b.delete_after is null
      and r.state = 'removing' and ${isAtRest}
    returning r.blob_id`.execute(trx);
  return { accepted: rows.length > 0 };
}
