import { sql } from 'kysely';
import { timestampDate } from '@bufbuild/protobuf/wkt';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { AppError } from '@stowage/common/errors';
import type {
  ForgetBackendReplicasRequest,
  ForgetBackendReplicasResponseSchema,
} from '@stowage/proto/stowage/catalog/v1/content';
import type { Trx } from './nodes.ts';

const pageSize = 2_000;

/** Beyond so many, last copies are not counted any further. */
const countedMax = 10_000;

/**
 * Of `catalog.replicas r` and `catalog.blobs b`: nothing else is left of content that is still wanted. A copy on a backend
 * that is unhealthy is no ground to give up another one: it may be as dead.
 */
const isLastCopy = sql`(r.state in ('available', 'unverified') and b.delete_after is null and not exists (
    select from catalog.replicas other join registry.backend_standing standing on standing.id = other.backend_id
    where other.blob_id = r.blob_id and other.backend_id <> r.backend_id and other.state = 'available'
      and standing.health_status <> 'unhealthy'))`;

/**
 * Forgets one page of the replicas on a backend that is lost; `more` tells that others may be left. Without `accept_loss`
 * it throws `state_conflict` (member `last_copies`, at most 10,000) while the backend holds the last good copy of
 * anything, and forgets none.
 */
export async function forgetBackendReplicas(
  trx: Trx,
  { backendId, acceptLoss, first, madeBefore }: ForgetBackendReplicasRequest,
): Promise<MessageInitShape<typeof ForgetBackendReplicasResponseSchema>> {
  if (first && !acceptLoss) await refuseLoss(trx, backendId);
  const isOlder = madeBefore ? sql`created_at < ${timestampDate(madeBefore)}` : sql`true`;
  const { rows } = await sql<{ blob_id: string }>`
    select blob_id from catalog.replicas where backend_id = ${backendId} and ${isOlder} limit ${pageSize}`.execute(trx);
  const ids = rows.map((row) => row.blob_id);
  // A statement of its own, so that the next ones see what the locks had to wait for.
  await sql`select from catalog.blobs where id = any(${ids}::uuid[]) order by id for update`.execute(trx);
  // Of others too, so that none is claimed for removal because this one stays.
  await sql`
    select from catalog.replicas where blob_id = any(${ids}::uuid[]) order by blob_id, backend_id for update`.execute(
    trx,
  );
  const { rows: counted } = await sql<{ lost: string }>`
    select count(*) as lost from catalog.replicas r join catalog.blobs b on b.id = r.blob_id
    where r.backend_id = ${backendId} and r.blob_id = any(${ids}::uuid[]) and ${isLastCopy}`.execute(trx);
  const lost = BigInt(counted[0]?.lost ?? 0);
  if (lost > 0n && !acceptLoss) throw lastCopies(Number(lost));
  const { numAffectedRows = 0n } = await sql`
    delete from catalog.replicas
    where backend_id = ${backendId} and blob_id = any(${ids}::uuid[]) and ${isOlder}`.execute(trx);
  await sql`
    delete from catalog.blobs b where id = any(${ids}::uuid[]) and delete_after <= now()
      and not exists (select from catalog.replicas r where r.blob_id = b.id)
      and not exists (select from catalog.nodes n where n.blob_id = b.id)`.execute(trx);
  return { forgotten: numAffectedRows, lost, more: ids.length === pageSize };
}

async function refuseLoss(trx: Trx, backendId: string): Promise<void> {
  const { rows } = await sql<{ count: string }>`
    select count(*) as count from (
      select from catalog.replicas r join catalog.blobs b on b.id = r.blob_id
      where r.backend_id = ${backendId} and ${isLastCopy} limit ${countedMax}) last_copies`.execute(trx);
  const count = Number(rows[0]?.count);
  if (count > 0) throw lastCopies(count);
}

function lastCopies(count: number): AppError {
  return new AppError(
    'state_conflict',
    `The backend holds the last good copy of ${count === countedMax ? 'at least ' : ''}${count} blobs: accept their loss, or bring it back.`,
    { members: { last_copies: count } },
  );
}
