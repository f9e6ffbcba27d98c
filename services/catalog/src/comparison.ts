import { sql } from 'kysely';
import type { QueryExecutorProvider } from 'kysely';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { validationError } from '@stowage/common/errors';
import { isId } from '@stowage/common/ids';
import { dueNow, enqueueJob } from '@stowage/common/jobs/enqueue';
import { BlobStanding } from '@stowage/proto/stowage/catalog/v1/comparison';
import type {
  AdoptReplicaRequest,
  CondemnUnknownBlobsRequest,
  CondemnUnknownBlobsResponseSchema,
  CountBlobsResponseSchema,
  ListBackendReplicasRequest,
  ListBackendReplicasResponseSchema,
  LookUpBlobsRequest,
  LookUpBlobsResponseSchema,
} from '@stowage/proto/stowage/catalog/v1/comparison';
import type { Trx } from './nodes.ts';
import { requireLimit } from './paging.ts';
import { replicaStates } from './replicas.ts';
import type { ReplicaRow } from './replicas.ts';

interface BackendReplicaRow {
  blob_id: string;
  size: string;
  state: ReplicaRow['state'];
}

const idsMax = 1_000;

/** Of fewer than this the number is told exactly. */
const countedMax = 100_000;

/** Reads one page of the replicas on a backend in the order of their keys, in one keyset query. Throws `validation_failed`. */
export async function listBackendReplicas(
  db: QueryExecutorProvider,
  { backendId, after, limit }: ListBackendReplicasRequest,
): Promise<MessageInitShape<typeof ListBackendReplicasResponseSchema>> {
  if (after !== '' && !isId(after)) throw validationError([{ pointer: '/after', detail: 'must be an id' }]);
  const [folder, blobId] = after === '' ? [-1, null] : [Number.parseInt(after.slice(-2), 16), after];
  const { rows } = await sql<BackendReplicaRow>`
    select r.blob_id, r.state, b.size from (
      select blob_id, state, get_byte(uuid_send(blob_id), 15) as folder from catalog.replicas
      where backend_id = ${backendId} and (get_byte(uuid_send(blob_id), 15), blob_id)
        > (${folder}::integer, coalesce(${blobId}::uuid, '00000000-0000-0000-0000-000000000000'))
      order by get_byte(uuid_send(blob_id), 15), blob_id limit ${requireLimit(limit)}
    ) r join catalog.blobs b on b.id = r.blob_id order by r.folder, r.blob_id`.execute(db);
  return {
    items: rows.map((row) => ({ blobId: row.blob_id, size: BigInt(row.size), state: replicaStates[row.state] })),
  };
}

const standings = {
  unknown: BlobStanding.UNKNOWN,
  unfinished: BlobStanding.UNFINISHED,
  elsewhere: BlobStanding.ELSEWHERE,
  here: BlobStanding.HERE,
  leaving: BlobStanding.LEAVING,
} as const;

/** Tells what is known of blobs that a backend lists, by one statement: of one moment. Throws `validation_failed`. */
export async function lookUpBlobs(
  db: QueryExecutorProvider,
  { backendId, blobIds }: LookUpBlobsRequest,
): Promise<MessageInitShape<typeof LookUpBlobsResponseSchema>> {
  const { rows } = await sql<{ standing: keyof typeof standings }>`
    select case
        when r.blob_id is not null then 'here'
        when b.delete_after is not null then 'leaving'
        when b.id is not null then 'elsewhere'
        when wanted.id in (select blob_id from upload.unfinished_blobs) then 'unfinished'
        else 'unknown' end as standing
    from unnest(${requireIds(blobIds)}::uuid[]) with ordinality as wanted (id, place)
      left join catalog.blobs b on b.id = wanted.id
      left join catalog.replicas r on r.blob_id = wanted.id and r.backend_id = ${backendId}
    order by wanted.place`.execute(db);
  return { standings: rows.map(({ standing }) => standings[standing]) };
}

/**
 * Makes the replica of a blob whose bytes were found on a backend. The blob is locked against its removal meanwhile. One
 * that waits for its removal gets none: once that is done, what is left is unknown, and goes by the rules for that.
 */
export async function adoptReplica(
  trx: Trx,
  { blobId, backendId }: AdoptReplicaRequest,
): Promise<{ accepted: boolean }> {
  const { rows } = await sql`
    insert into catalog.replicas (blob_id, backend_id, key, state)
    select b.id, names.id, ${keyOf(sql`b.id`)}, 'unverified'
    from catalog.blobs b, registry.backend_names names
    where b.id = ${blobId} and b.delete_after is null and names.id = ${backendId} for key share of b
    on conflict do nothing returning blob_id`.execute(trx);
  return { accepted: rows.length > 0 };
}

/**
 * Gives up blobs that nothing knows, and queues the removal of their bytes. The row that each gets is what a finalize or
 * an import at the same moment meets: whichever is first decides. Throws `validation_failed`.
 */
export async function condemnUnknownBlobs(
  trx: Trx,
  { backendId, blobIds, despiteHold }: CondemnUnknownBlobsRequest,
): Promise<MessageInitShape<typeof CondemnUnknownBlobsResponseSchema>> {
  const ids = [...requireIds(blobIds)].sort();
  const { rows } = await sql<{ id: string }>`
    with condemned as (
      insert into catalog.blobs (id, size, sha256, chunk_crc32c, delete_after)
      select wanted.id, 0, null, '', ${dueNow} from unnest(${ids}::uuid[]) as wanted (id)
      where wanted.id not in (select blob_id from upload.unfinished_blobs)
        and (select blob_id from catalog.nodes where blob_id is not null order by blob_id limit 1) is not null
      on conflict do nothing returning id
    ), replicas as (
      insert into catalog.replicas (blob_id, backend_id, key, state)
      select id, ${backendId}::uuid, ${keyOf(sql`id`)}, 'removing' from condemned
    )
    select id from condemned`.execute(trx);
  const condemned = rows.map(({ id }) => id);
  if (condemned.length > 0)
    await enqueueJob(trx, {
      kind: 'remove_blob',
      params: { unknown_blobs: condemned, ...(despiteHold ? { despite_hold: true } : {}) },
    });
  return { blobIds: condemned };
}

/** Estimates the number of blobs: exactly where they are few, else as the database last analysed it. */
export async function countBlobs(
  db: QueryExecutorProvider,
): Promise<MessageInitShape<typeof CountBlobsResponseSchema>> {
  const { rows } = await sql<{ blobs: string }>`
    select case when reltuples >= ${countedMax} then reltuples::bigint
      else (select count(*) from (select from catalog.blobs limit ${countedMax}) few) end as blobs
    from pg_class where oid = 'catalog.blobs'::regclass`.execute(db);
  return { blobs: BigInt(rows[0]?.blobs ?? 0) };
}

/** As blobKey() makes it. */
function keyOf(id: ReturnType<typeof sql>): ReturnType<typeof sql> {
  return sql`'blobs/' || right(${id}::text, 2) || '/' || ${id}::text`;
}

function requireIds(ids: readonly string[]): readonly string[] {
  if (ids.length <= idsMax && ids.every(isId)) return ids;
  throw validationError([{ pointer: '/blob_ids', detail: `must be at most ${idsMax} ids` }]);
}
