import type { MessageInitShape } from '@bufbuild/protobuf';
import { inTransaction, query } from '@stowage/common/database/transaction';
import { AppError, unavailable, validationError } from '@stowage/common/errors';
import { newId, rootDirectoryId } from '@stowage/common/ids';
import type { CallContext } from '@stowage/common/rpc/context';
import type { CreateUploadRequest, CreateUploadResponseSchema } from '@stowage/proto/stowage/upload/v1/upload';
import { sql } from 'kysely';
import { endUpload } from './free-content.ts';
import { fileClassOf } from './media-type.ts';
import type { UploadParts } from './parts.ts';
import { bareMediaType, checkTarget } from './target.ts';
import type { Target } from './target.ts';
import { requireActor, uploadColumns, uploadMessage } from './uploads.ts';
import type { Upload } from './uploads.ts';

const retryAfterSeconds = 60;

interface NewUpload {
  id: string;
  userId: string;
  length: bigint | null;
  metadata: string | null;
  target: Target;
}

/**
 * Makes an upload, after refusing what can be refused before the first byte. Its row is committed first, so that no
 * crash leaves staged content that nobody knows of.
 */
export async function createUpload(
  parts: UploadParts,
  request: CreateUploadRequest,
  context: CallContext,
): Promise<MessageInitShape<typeof CreateUploadResponseSchema>> {
  const { userId } = requireActor(context);
  const target = checkTarget(request.target);
  const length = request.length ?? null;
  if (length !== null) checkLength(length, parts.settings.maxUploadBytes, '/length');
  const fileClass = target.fileClass ?? fileClassOf(bareMediaType(target.mediaType));
  const [{ policy }] = await Promise.all([
    parts.policies.getPolicy({ fileClass }, context),
    parts.content.checkDestination({ directoryId: target.directoryId ?? rootDirectoryId }, context),
  ]);
  const upload = { id: newId(), userId, length, metadata: request.metadata ?? null, target };
  await insertUpload(parts, upload);
  const backendId = await openStaged(parts, upload, policy?.backendIds ?? [], context);
  return { upload: uploadMessage(await noteBackend(parts, upload.id, backendId), 0n) };
}

/** Throws `validation_failed` for a negative length, `payload_too_large` for one beyond the limit. */
export function checkLength(length: bigint, maxBytes: number, pointer: string): void {
  if (length < 0n) throw validationError([{ pointer, detail: 'must not be negative' }]);
  if (length <= BigInt(maxBytes)) return;
  throw new AppError('payload_too_large', `An upload may have at most ${maxBytes} bytes.`);
}

async function insertUpload({ db, settings }: UploadParts, upload: NewUpload): Promise<void> {
  const { id, userId, length, metadata, target } = upload;
  await inTransaction(db, async (trx) => {
    // One at a time for each user, so that many at once do not pass the limit together.
    await sql`select pg_advisory_xact_lock(hashtextextended(${`upload/${userId}`}, 0))`.execute(trx);
    const { rows } = await sql`
      insert into upload.uploads (id, user_id, length, metadata, filename, directory_id, media_type, file_class, sha256,
        on_conflict, file_id, blob_id, expires_at)
      select ${id}::uuid, ${userId}::uuid, ${length}::bigint, ${metadata}, ${target.filename}, ${target.directoryId}::uuid,
        ${target.mediaType}, ${target.fileClass}, ${target.sha256}::bytea, ${target.onConflict}, ${newId()}::uuid,
        ${newId()}::uuid, now() + ${settings.expiryMs} * interval '1 ms'
      where (select count(*) from upload.uploads where user_id = ${userId} and state in ('open', 'finalizing'))
        < ${settings.uploadsPerUser}
      returning id`.execute(trx);
    if (rows.length > 0) return;
    const detail = 'You have too many unfinished uploads: finish or delete some, or let them expire.';
    throw new AppError('rate_limited', detail, { members: { retry_after: retryAfterSeconds } });
  });
}

async function openStaged(
  parts: UploadParts,
  upload: NewUpload,
  backendIds: readonly string[],
  context: CallContext,
): Promise<string> {
  const size = upload.length === null ? {} : { size: upload.length };
  try {
    const wanted = { stagedId: upload.id, backendIds: [...backendIds], ...size };
    return (await parts.blobs.openStaged(wanted, context)).backendId;
  } catch (error) {
    // It may have been opened all the same: expiry looks on every backend.
    await endUpload(parts.db, upload.id).catch((failure: unknown) => {
      parts.logger.warn(
        { err: failure, upload_id: upload.id },
        'An upload that could not be opened ends by expiry only.',
      );
    });
    throw error;
  }
}

async function noteBackend({ db }: UploadParts, id: string, backendId: string): Promise<Upload> {
  const { rows } = await query(() =>
    sql<Upload>`
      update upload.uploads u set backend_id = ${backendId} where u.id = ${id} and u.state = 'open'
      returning ${uploadColumns}`.execute(db),
  );
  const [upload] = rows;
  if (!upload) throw unavailable('The upload could not be opened in time: try again.');
  return upload;
}
