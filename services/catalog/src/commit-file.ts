import { chunkBytes } from '@stowage/common/content-chunks';
import { sql } from 'kysely';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { violatedConstraint } from '@stowage/common/database/database-error';
import { AppError, validationError } from '@stowage/common/errors';
import type { FieldError } from '@stowage/common/errors';
import { isId } from '@stowage/common/ids';
import { dueNow, enqueueJob } from '@stowage/common/jobs/enqueue';
import { normalizeName } from '@stowage/common/names';
import type { CallContext } from '@stowage/common/rpc/context';
import type {
  AbandonBlobRequest,
  AbandonBlobResponseSchema,
  Blob,
  CommitFileRequest,
  CommitFileResponseSchema,
  SealedReplica,
} from '@stowage/proto/stowage/catalog/v1/content';
import { removalAttempts } from './blobs.ts';
import { announce, causeOf } from './file-events.ts';
import { takeName } from './free-name.ts';
import { nodeMessage } from './node-message.ts';
import { findNode, lockDestination, nodeColumns } from './nodes.ts';
import type { NodeRow, Trx } from './nodes.ts';
import { childStanding } from './standing.ts';
import { placeWhereWanted } from './wanted-places.ts';

/**
 * Makes a file of a sealed blob: blob, replicas, node and event in the caller's transaction. Asked again with the same
 * file id it answers the file as it is now, whatever else the request says. Throws `validation_failed`, `not_found`,
 * `state_conflict`, `name_conflict`, and `gone` for a blob that was abandoned or purged.
 */
export async function commitFile(
  trx: Trx,
  context: CallContext,
  request: CommitFileRequest,
): Promise<MessageInitShape<typeof CommitFileResponseSchema>> {
  const blob = checkContent(request);
  if (!(await insertBlob(trx, blob, request.fileId))) return committedBefore(trx, request.fileId);
  const name = normalizeName(request.name);
  const { fileId, directoryId, onConflict } = request;
  const parent = await lockDestination(trx, directoryId, '/directory_id');
  await insertReplicas(trx, blob.id, request.replicas);
  await placeWhereWanted(trx, blob.id, request.fileClass, backendsOf(request.replicas));
  const row = await takeName(trx, { parentId: directoryId, name, onConflict, nodeId: fileId }, (free) =>
    insertFile(trx, request, blob, free),
  );
  await announce(trx, causeOf(context), 'created', {
    id: fileId,
    kind: 'file',
    parent_id: directoryId,
    name: row.name,
  });
  const file = { row, standing: childStanding(directoryId, parent.standing, row.name) };
  return { file: nodeMessage(file), created: true };
}

async function committedBefore(trx: Trx, fileId: string): Promise<MessageInitShape<typeof CommitFileResponseSchema>> {
  const file = await findNode(trx, fileId, 'file');
  if (!file) throw new AppError('gone', 'The content was given up: upload it again.');
  return { file: nodeMessage(file), created: false };
}

/** The blob of a request that says enough of its content. Throws `validation_failed`. */
export function checkContent(request: CommitFileRequest): Blob {
  const { blob } = request;
  const errors: FieldError[] = [];
  const chunks = (Number(blob?.size ?? 0) + chunkBytes - 1) / chunkBytes;
  if (!isId(request.fileId)) errors.push({ pointer: '/file_id', detail: 'must be an id' });
  if (!blob || !isId(blob.id) || blob.size < 0n)
    errors.push({ pointer: '/blob', detail: 'must have an id and a size' });
  if (blob?.sha256.length !== 32) errors.push({ pointer: '/blob/sha256', detail: 'must have 32 bytes' });
  if (blob?.chunkCrc32c.length !== Math.floor(chunks) * 4) {
    errors.push({ pointer: '/blob/chunk_crc32c', detail: 'must have 4 bytes for each MiB' });
  }
  if (request.replicas.length === 0) errors.push({ pointer: '/replicas', detail: 'must not be empty' });
  if (!blob || errors.length > 0) throw validationError(errors);
  return blob;
}

/** False where the file or the blob exists already; waits for a transaction that is making it. */
async function insertBlob(trx: Trx, blob: Blob, fileId: string): Promise<boolean> {
  const { rows } = await sql`
    insert into catalog.blobs (id, size, sha256, chunk_crc32c)
    select ${blob.id}, ${blob.size}, ${Buffer.from(blob.sha256)}, ${Buffer.from(blob.chunkCrc32c)}
    where not exists (select from catalog.nodes where id = ${fileId})
    on conflict do nothing returning id`.execute(trx);
  return rows.length > 0;
}

export function backendsOf(replicas: readonly SealedReplica[]): string[] {
  return replicas.map((replica) => replica.backendId);
}

async function insertReplicas(trx: Trx, blobId: string, replicas: readonly SealedReplica[]): Promise<void> {
  const backends = backendsOf(replicas);
  const keys = replicas.map((replica) => replica.key);
  try {
    await sql`
      insert into catalog.replicas (blob_id, backend_id, key, state, verified_at)
      select ${blobId}, backend_id, key, 'available', now()
      from unnest(${backends}::uuid[], ${keys}::text[]) as sealed (backend_id, key)`.execute(trx);
  } catch (error) {
    if (violatedConstraint(error) !== 'replicas_backend_id_fkey') throw error;
    throw new AppError('state_conflict', 'The backend that holds the content is gone.', { cause: error });
  }
}

async function insertFile(trx: Trx, request: CommitFileRequest, blob: Blob, name: string): Promise<NodeRow | null> {
  const { rows } = await sql<NodeRow>`
    insert into catalog.nodes as n (id, parent_id, kind, name, blob_id, size, media_type, file_class)
    values (${request.fileId}, ${request.directoryId}, 'file', ${name}, ${blob.id}, ${blob.size},
      ${request.mediaType}, ${request.fileClass})
    on conflict (parent_id, name) where deleted_at is null do nothing
    returning ${nodeColumns}, ${Buffer.from(blob.sha256)}::bytea as sha256`.execute(trx);
  return rows[0] ?? null;
}

/**
 * Gives up a blob that may lie sealed on a backend and has no file: from now on it can't be committed, and its removal
 * is queued. Answers the file where it was committed after all. Repeatable.
 */
export async function abandonBlob(
  trx: Trx,
  request: AbandonBlobRequest,
): Promise<MessageInitShape<typeof AbandonBlobResponseSchema>> {
  const { blobId, replica } = request;
  const { rows } = await sql`
    insert into catalog.blobs (id, size, sha256, chunk_crc32c, delete_after) values (${blobId}, 0, null, '', ${dueNow})
    on conflict do nothing returning id`.execute(trx);
  if (rows.length === 0) {
    const file = await findNode(trx, request.fileId, 'file');
    return file ? { file: nodeMessage(file) } : {};
  }
  if (replica) {
    await sql`
      insert into catalog.replicas (blob_id, backend_id, key, state)
      values (${blobId}, ${replica.backendId}, ${replica.key}, 'removing')`.execute(trx);
  }
  const removal = { kind: 'remove_blob', params: { blob_id: blobId }, dedupeKey: blobId } as const;
  await enqueueJob(trx, { ...removal, maxAttempts: removalAttempts });
  return {};
}
