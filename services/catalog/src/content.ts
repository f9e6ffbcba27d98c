import { sql } from 'kysely';
import type { QueryExecutorProvider } from 'kysely';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { AppError, validationError } from '@stowage/common/errors';
import { isId } from '@stowage/common/ids';
import type {
  CheckDestinationRequest,
  GetChunkChecksumsRequest,
  GetChunkChecksumsResponseSchema,
  GetContentRequest,
  GetContentResponseSchema,
} from '@stowage/proto/stowage/catalog/v1/content';
import type { ReplicaSchema } from '@stowage/proto/stowage/catalog/v1/node';
import { nodeMessage } from './node-message.ts';
import { noDestination, findNode, requireActive, requireNode, requireUsable } from './nodes.ts';
import { replicaColumns, replicaMessage } from './replicas.ts';
import type { ReplicaRow } from './replicas.ts';

/** The unit of checksums, in bytes. */
export const chunkBytes = 1_048_576;

/** Up to how many chunks a blob's checksums come with it; a longer list is asked for in runs. */
const inlineChunksMax = 1_024;

const runChunksMax = 16_384;

/** Finds a file's content and where it can be read, best replica first. Throws `not_found`, `state_conflict`. */
export async function getContent(
  db: QueryExecutorProvider,
  request: GetContentRequest,
): Promise<MessageInitShape<typeof GetContentResponseSchema>> {
  const file = await requireNode(db, request.fileId, 'file');
  requireActive(file, 'The file');
  const { blob_id: blobId, size, sha256 } = file.row;
  if (blobId === null || size === null || sha256 === null) throw new Error(`file ${file.row.id} has no content`);
  const { chunkCrc32c, replicas } = await readableContent(db, blobId);
  return { file: nodeMessage(file), blob: { id: blobId, size: BigInt(size), sha256, chunkCrc32c }, replicas };
}

type ContentRow = { chunk_crc32c: Buffer } & (ReplicaRow | { backend_id: null });

async function readableContent(
  db: QueryExecutorProvider,
  blobId: string,
): Promise<{ chunkCrc32c: Uint8Array; replicas: MessageInitShape<typeof ReplicaSchema>[] }> {
  const { rows } = await sql<ContentRow>`
    select case when length(b.chunk_crc32c) <= ${inlineChunksMax * 4} then b.chunk_crc32c else '' end as chunk_crc32c,
      ${replicaColumns}
    from catalog.blobs b
    left join catalog.replicas r on r.blob_id = b.id and r.state in ('available', 'unverified')
    left join registry.backend_names names on names.id = r.backend_id
    where b.id = ${blobId} order by r.state = 'available' desc, r.created_at, r.backend_id`.execute(db);
  const replicas = rows.flatMap((row) => (row.backend_id === null ? [] : [replicaMessage(row)]));
  return { chunkCrc32c: rows[0]?.chunk_crc32c ?? new Uint8Array(), replicas };
}

/** Reads the CRC-32C of a run of chunks, 4 bytes each; shorter where the blob ends. Throws `not_found`. */
export async function getChunkChecksums(
  db: QueryExecutorProvider,
  request: GetChunkChecksumsRequest,
): Promise<MessageInitShape<typeof GetChunkChecksumsResponseSchema>> {
  const { blobId, first, count } = request;
  if (first < 0n || first > 2n ** 28n) throw validationError([{ pointer: '/first', detail: 'is out of range' }]);
  if (count < 1 || count > runChunksMax) {
    throw validationError([{ pointer: '/count', detail: `must be from 1 to ${runChunksMax}` }]);
  }
  const { rows } = await sql<{ run: Buffer }>`
    select substring(chunk_crc32c from ${Number(first) * 4 + 1} for ${count * 4}) as run
    from catalog.blobs where id = ${isId(blobId) ? blobId : null}`.execute(db);
  const [row] = rows;
  if (!row) throw new AppError('not_found', 'There is no such content.');
  return { chunkCrc32c: row.run };
}

/** Checks that a file could be made in a directory now. Throws `not_found`, `state_conflict`, `validation_failed`. */
export async function checkDestination(
  db: QueryExecutorProvider,
  request: CheckDestinationRequest,
): Promise<Record<string, never>> {
  const directory = await findNode(db, request.directoryId, 'directory');
  if (!directory) throw noDestination();
  requireUsable(directory, '/directory_id');
  return {};
}
