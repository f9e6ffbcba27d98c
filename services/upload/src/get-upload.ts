import type { MessageInitShape } from '@bufbuild/protobuf';
import { AppError } from '@stowage/common/errors';
import type { CallContext } from '@stowage/common/rpc/context';
import type { GetUploadRequest, GetUploadResponseSchema } from '@stowage/proto/stowage/upload/v1/upload';
import type { UploadParts } from './parts.ts';
import { backendOf, findVisibleUpload, lengthOf, uploadMessage } from './uploads.ts';
import type { Upload } from './uploads.ts';

/** Reads an upload with its durable offset, which the store alone knows; waits for no writer. */
export async function getUpload(
  parts: UploadParts,
  request: GetUploadRequest,
  context: CallContext,
): Promise<MessageInitShape<typeof GetUploadResponseSchema>> {
  const upload = await findVisibleUpload(parts.reads, request.id, context);
  if (upload.state !== 'open') return { upload: uploadMessage(upload, lengthOf(upload) ?? 0n) };
  const offset = await stagedOffset(parts, upload, context);
  if (offset !== null) return { upload: uploadMessage(upload, offset) };
  const now = await findVisibleUpload(parts.reads, request.id, context);
  if (now.state === 'open') throw contentLost();
  return { upload: uploadMessage(now, lengthOf(now) ?? 0n) };
}

/** The durable offset of an upload's staged content, in bytes; null where there is none (any more). */
export async function stagedOffset(parts: UploadParts, upload: Upload, context: CallContext): Promise<bigint | null> {
  try {
    const staged = { backendId: backendOf(upload), stagedId: upload.id };
    return (await parts.blobs.statStaged(staged, context)).offset;
  } catch (error) {
    if (error instanceof AppError && error.code === 'not_found') return null;
    throw error;
  }
}

/** What was staged for an upload is not there any more. */
export function contentLost(): AppError {
  return new AppError('gone', 'The content of this upload is gone: start a new one.');
}
