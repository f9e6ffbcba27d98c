import { sql } from 'kysely';
import type { RawBuilder } from 'kysely';
import { enqueueJob } from '@stowage/common/jobs/enqueue';
import type { Trx } from './nodes.ts';

/**
 * Whether content on `backends` lies where the policy of its class, or else the default one, wants it: on so many enabled
 * backends, and on the first of them.
 */
export function liesAsWanted(fileClass: string, backends: readonly string[]): RawBuilder<boolean> {
  return sql<boolean>`coalesce((
    select backend_ids <@ ${backends}::uuid[] and cardinality(backend_ids) = replicas
    from placement.wanted_places where file_class in (${fileClass}, 'default')
    order by (file_class = ${fileClass}) desc limit 1), true)`;
}

/** Queues the job that brings a new blob to where it is wanted; none where it lies there already. */
export async function placeWhereWanted(
  trx: Trx,
  blobId: string,
  fileClass: string,
  backends: readonly string[],
): Promise<void> {
  const { rows } = await sql<{ satisfied: boolean }>`
    select ${liesAsWanted(fileClass, backends)} as satisfied`.execute(trx);
  if (rows[0]?.satisfied) return;
  await enqueueJob(trx, { kind: 'place_blob', params: { blob_id: blobId }, dedupeKey: blobId });
}
