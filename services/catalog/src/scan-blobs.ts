import { sql } from 'kysely';
import type { QueryExecutorProvider } from 'kysely';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { validationError } from '@stowage/common/errors';
import { isId } from '@stowage/common/ids';
import type { Arrangement, ScanBlobsRequest, ScanBlobsResponseSchema } from '@stowage/proto/stowage/catalog/v1/replica';
import { firstId, placedBlob, placedColumns } from './list-blobs.ts';
import type { PlacedRow } from './list-blobs.ts';

const limitMax = 10_000;

/**
 * Walks over the next blobs by id and gives those that do not lie as `inOrder` says. Sets are compared where the rows are, so
 * that a million blobs that lie right cost seconds, and no memory. Throws `validation_failed`.
 */
export async function scanBlobs(
  db: QueryExecutorProvider,
  request: ScanBlobsRequest,
): Promise<MessageInitShape<typeof ScanBlobsResponseSchema>> {
  const { after, limit, inOrder } = checked(request);
  const { rows: walked } = await sql<{ blobs: string; bytes: string; last: string | null }>`
    select count(*) as blobs, coalesce(sum(size), 0) as bytes, max(id::text) as last from (
      select id, size from catalog.blobs where id > ${after} and delete_after is null order by id limit ${limit}
    ) page`.execute(db);
  const { blobs = '0', bytes = '0', last = null } = walked[0] ?? {};
  if (last === null) return { items: [], last: '' };
  const items = await notInOrder(db, { after, last }, inOrder);
  return { items: items.map(placedBlob), blobs: Number(blobs), bytes: BigInt(bytes), last };
}

/** After `after`, and up to `last`. */
interface Range {
  after: string;
  last: string;
}

async function notInOrder(
  db: QueryExecutorProvider,
  { after, last }: Range,
  inOrder: readonly Arrangement[],
): Promise<readonly PlacedRow[]> {
  const classes = inOrder.map(({ fileClass }) => fileClass);
  // Arrays of arrays must be rectangular: each goes as a text.
  const backends = inOrder.map(({ backendIds }) => `{${[...backendIds].sort().join(',')}}`);
  // Facts are put together by one grouping, not by joins: with those the planner guesses, and one in a few guesses is a disaster.
  const { rows } = await sql<PlacedRow>`
    with arranged as materialized (
      select given.file_class, given.backend_ids::uuid[] as backend_ids
      from unnest(${classes}::text[], ${backends}::text[]) as given (file_class, backend_ids)),
    lie as (
      select id, array_agg(backend_id order by backend_id) filter (where backend_id is not null) as backend_ids,
        bool_and(is_available) as are_available, min(file_class) as file_class, max(file_class) as last_class
      from (
        select id, true as stays, null::uuid as backend_id, null::boolean as is_available, null::text as file_class
        from catalog.blobs where id > ${after} and id <= ${last} and delete_after is null
        union all
        select blob_id, null, backend_id, state = 'available', null
        from catalog.replicas where blob_id > ${after} and blob_id <= ${last}
        union all
        select blob_id, null, null, null, file_class
        from catalog.nodes where blob_id > ${after} and blob_id <= ${last} and purged_at is null
      ) facts group by id having bool_or(stays))
    select ${placedColumns} from lie
    join catalog.blobs b on b.id = lie.id
    left join arranged own on own.file_class = lie.file_class
    left join arranged others on others.file_class = ''
    where (lie.are_available and lie.file_class = lie.last_class
      and lie.backend_ids = coalesce(own.backend_ids, others.backend_ids)) is not true
    order by b.id`.execute(db);
  return rows;
}

function checked({ after, limit, inOrder }: ScanBlobsRequest): Pick<ScanBlobsRequest, 'after' | 'limit' | 'inOrder'> {
  const invalid = (pointer: string, detail: string): never => {
    throw validationError([{ pointer, detail }]);
  };
  if (after !== '' && !isId(after)) invalid('/after', 'must be an id');
  if (limit < 1 || limit > limitMax) invalid('/limit', `must be from 1 to ${limitMax}`);
  if (new Set(inOrder.map(({ fileClass }) => fileClass)).size < inOrder.length)
    invalid('/in_order', 'must name each class once');
  if (!inOrder.every(({ backendIds }) => backendIds.every(isId))) invalid('/in_order', 'must name backends by ids');
  return { after: after === '' ? firstId : after, limit, inOrder };
}
