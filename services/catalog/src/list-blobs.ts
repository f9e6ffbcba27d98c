import { sql } from 'kysely';
import type { QueryExecutorProvider, RawBuilder } from 'kysely';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { AppError, validationError } from '@stowage/common/errors';
import { isId } from '@stowage/common/ids';
import type {
  GetBlobRequest,
  GetBlobResponseSchema,
  ListBlobsRequest,
  ListBlobsResponseSchema,
  PlacedBlobSchema,
  PlacedReplicaSchema,
} from '@stowage/proto/stowage/catalog/v1/replica';
import { requireLimit } from './paging.ts';
import { replicaStates } from './replicas.ts';
import type { ReplicaRow } from './replicas.ts';

export interface PlacedRow {
  id: string;
  size: string;
  sha256: Buffer;
  file_classes: string[];
  /** Each `backend_id state` or `backend_id state verified_ago_ms`: one look-up and no JSON, for millions of blobs. */
  replicas: string[];
}

export const firstId = '00000000-0000-0000-0000-000000000000';

/** Of `b`. The rows of one blob are few: two look-ups by its id give all that belongs to it. */
export const placedColumns = sql`b.id, b.size, b.sha256,
  array(select n.file_class from catalog.nodes n where n.blob_id = b.id and n.purged_at is null) as file_classes,
  array(
    select concat_ws(' ', r.backend_id, r.state, floor(extract(epoch from now() - r.verified_at) * 1000)::bigint)
    from catalog.replicas r where r.blob_id = b.id order by r.created_at, r.backend_id) as replicas`;

/** Reads one page of the blobs that are meant to stay, by id, in one keyset query. Throws `validation_failed`. */
export async function listBlobs(
  db: QueryExecutorProvider,
  request: ListBlobsRequest,
): Promise<MessageInitShape<typeof ListBlobsResponseSchema>> {
  const after = request.after === '' ? firstId : request.after;
  if (after !== firstId && !isId(after)) throw validationError([{ pointer: '/after', detail: 'must be an id' }]);
  const page = { after, limit: requireLimit(request.limit) };
  const { rows } = await (request.damaged ? damagedPage(page) : wholePage(page)).execute(db);
  return { items: rows.map(placedBlob) };
}

interface Page {
  after: string;
  limit: number;
}

function wholePage({ after, limit }: Page): RawBuilder<PlacedRow> {
  return sql<PlacedRow>`
    select ${placedColumns} from (
      select id, size, sha256 from catalog.blobs where id > ${after} and delete_after is null order by id limit ${limit}
    ) b order by b.id`;
}

function damagedPage({ after, limit }: Page): RawBuilder<PlacedRow> {
  // Each blob once, however many of its replicas are damaged; one that waits for its removal is not repaired.
  return sql<PlacedRow>`
    select ${placedColumns} from (
      select distinct on (d.blob_id) d.blob_id as id, b.size, b.sha256
      from catalog.replicas d join catalog.blobs b on b.id = d.blob_id and b.delete_after is null
      where d.state in ('corrupt', 'missing') and d.blob_id > ${after} order by d.blob_id limit ${limit}
    ) b order by b.id`;
}

/** Reads one blob with where it lies. Throws `not_found`, also for one that waits for its removal. */
export async function getBlob(
  db: QueryExecutorProvider,
  { blobId }: GetBlobRequest,
): Promise<MessageInitShape<typeof GetBlobResponseSchema>> {
  const { rows } = await sql<PlacedRow>`
    select ${placedColumns} from catalog.blobs b
    where b.id = ${isId(blobId) ? blobId : null} and b.delete_after is null`.execute(db);
  const [row] = rows;
  if (!row) throw new AppError('not_found', 'There is no such content.');
  return { blob: placedBlob(row) };
}

export function placedBlob(row: PlacedRow): MessageInitShape<typeof PlacedBlobSchema> {
  return {
    id: row.id,
    size: BigInt(row.size),
    sha256: row.sha256,
    fileClasses: row.file_classes.length > 1 ? [...new Set(row.file_classes)] : row.file_classes,
    replicas: row.replicas.map(placedReplica),
  };
}

function placedReplica(text: string): MessageInitShape<typeof PlacedReplicaSchema> {
  const [backendId = '', state = '', ago] = text.split(' ');
  if (!isState(state)) throw new Error(`a replica is in the unknown state ${state}`);
  return { backendId, state: replicaStates[state], ...(ago === undefined ? {} : { verifiedAgoMs: BigInt(ago) }) };
}

function isState(state: string): state is ReplicaRow['state'] {
  return Object.hasOwn(replicaStates, state);
}
