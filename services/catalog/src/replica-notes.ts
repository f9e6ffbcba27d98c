import { sql } from 'kysely';
import type {
  AddReplicaRequest,
  BeginReplicaRequest,
  ClaimReplicaRemovalRequest,
  KeepReplicaRequest,
} from '@stowage/proto/stowage/catalog/v1/replica';
import type { Trx } from './nodes.ts';

interface Accepted {
  accepted: boolean;
}

/** Longer than any removal of bytes may take: what is kept, or copied anew, must not lose them to an earlier one. */
const removalMaxMs = 120_000;

/** Of `r`: no removal is under way. */
const isAtRest = sql`(r.state <> 'removing' or coalesce(r.removing_since <= now() - ${removalMaxMs} * interval '1 ms', true))`;

/**
 * Notes, before the first byte, that a copy is about to be made: whoever removes the blob meanwhile finds it. Refused where
 * a good or removing replica is there already, where no file needs the blob, and where the backend is gone.
 */
export async function beginReplica(trx: Trx, { blobId, backendId, key }: BeginReplicaRequest): Promise<Accepted> {
  const { rows } = await sql`
    insert into catalog.replicas as r (blob_id, backend_id, key, state)
    select b.id, names.id, ${key}, 'copying' from catalog.blobs b, registry.backend_names names
    where b.id = ${blobId} and b.delete_after is null and names.id = ${backendId} for key share of b
    on conflict (blob_id, backend_id) do update set state = 'copying' where r.state in ('copying', 'corrupt', 'missing')
    returning r.blob_id`.execute(trx);
  return { accepted: rows.length > 0 };
}

/** Notes that a copy that was begun is durable. Repeatable. */
export async function addReplica(trx: Trx, { blobId, backendId }: AddReplicaRequest): Promise<Accepted> {
  const { rows } = await sql`
    update catalog.replicas set state = case when state = 'copying' then 'unverified' else state end
    where blob_id = ${blobId} and backend_id = ${backendId} and state in ('copying', 'unverified', 'available')
    returning blob_id`.execute(trx);
  return { accepted: rows.length > 0 };
}

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
  const { rows } = await sql`
    update catalog.replicas r set state = 'removing', removing_since = now()
    where r.blob_id = ${blobId} and r.backend_id = ${backendId} and ${isAtRest} and ${staying.length}::bigint = (
      select count(*) from catalog.replicas s
      where s.blob_id = r.blob_id and s.backend_id = any(${staying}::uuid[]) and s.state = 'available'
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
