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
import { nodeMessage } from './node-message.ts';
import { noDestination, findNode, requireActive, requireNode, requireUsable } from './nodes.ts';
import { isReadable, replicaMessage, replicasIn, replicasOfNode } from './replicas.ts';
import type { WithReplicas } from './replicas.ts';

/** Up to how many chunks a blob's checksums come with it; a longer list is asked for in runs. */
const inlineChunksMax = 1_024;

const runChunksMax = 16_384;

const contentColumns = sql<WithReplicas & { chunk_crc32c: Buffer | null }>`${replicasOfNode}, (
    select case when length(b.chunk_crc32c) <= ${sql.lit(inlineChunksMax * 4)} then b.chunk_crc32c else '' end
    from catalog.blobs b where b.id = n.blob_id) as chunk_crc32c`;

/** Finds a file's content and where it can be read, best replica first, by one query. Throws `not_found`, `state_conflict`. */
export async function getContent(
  db: QueryExecutorProvider,
  request: GetContentRequest,
): Promise<MessageInitShape<typeof GetContentResponseSchema>> {
  const file = await requireNode(db, request.fileId, 'file', contentColumns);
  requireActive(file, 'The file');
  const { blob_id: id, size, sha256, chunk_crc32c: chunkCrc32c } = file.row;
  if (id === null || size === null || sha256 === null || chunkCrc32c === null) {
    throw new Error(`file ${file.row.id} has no content`);
  }
  return {
    file: nodeMessage(file),
    blob: { id, size: BigInt(size), sha256, chunkCrc32c },
    replicas: replicasIn(file.row).filter(isReadable).map(replicaMessage),
  };
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
