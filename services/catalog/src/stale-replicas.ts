import { sql } from 'kysely';
import type { QueryExecutorProvider } from 'kysely';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { isId } from '@stowage/common/ids';
import type {
  ListStaleReplicasRequest,
  ListStaleReplicasResponseSchema,
} from '@stowage/proto/stowage/catalog/v1/replica';
import { requireLimit } from './paging.ts';

interface StaleRow {
  blob_id: string;
  backend_id: string;
  key: string;
  size: string;
  sha256: Buffer;
}

/**
 * Lists readable replicas of some backends that were not read whole for a time, of each those that waited longest; none
 * of a blob that waits for its removal. Throws `validation_failed`.
 */
export async function listStaleReplicas(
  db: QueryExecutorProvider,
  { backendIds, forMs, limit }: ListStaleReplicasRequest,
): Promise<MessageInitShape<typeof ListStaleReplicasResponseSchema>> {
  const { rows } = await sql<StaleRow>`
    select stale.* from unnest(${backendIds.filter(isId)}::uuid[]) as wanted (id) cross join lateral (
      select r.blob_id, r.backend_id, r.key, b.size, b.sha256
      from catalog.replicas r join catalog.blobs b on b.id = r.blob_id and b.delete_after is null
      where r.backend_id = wanted.id and r.state in ('available', 'unverified')
        and coalesce(r.verified_at, r.created_at) < now() - ${Number(forMs)} * interval '1 ms'
      order by coalesce(r.verified_at, r.created_at) limit ${requireLimit(limit)}) stale`.execute(db);
  return {
    items: rows.map((row) => ({
      blobId: row.blob_id,
      backendId: row.backend_id,
      key: row.key,
      size: BigInt(row.size),
      sha256: row.sha256,
    })),
  };
}
