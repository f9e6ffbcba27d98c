import type { Readable } from 'node:stream';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { query } from '@stowage/common/database/transaction';
import { AppError, validationError } from '@stowage/common/errors';
import type { CallContext } from '@stowage/common/rpc/context';
import { linkTo } from '@stowage/common/runtime/spans';
import type { AppendUploadRequest, AppendUploadResponseSchema } from '@stowage/proto/stowage/upload/v1/upload';
import { sql } from 'kysely';
import { checkLength } from './create-upload.ts';
import { contentLost, stagedOffset } from './get-upload.ts';
import { locked } from './leases.ts';
import type { UploadLease } from './leases.ts';
import type { UploadParts } from './parts.ts';
import { backendOf, findUpload, gone, lengthOf, requireActor } from './uploads.ts';
import type { Upload } from './uploads.ts';

type Answer = MessageInitShape<typeof AppendUploadResponseSchema>;

interface Work {
  upload: Upload;
  request: AppendUploadRequest;
  body: Readable;
}

const lengthPointer = '/headers/upload-length';
const offsetPointer = '/headers/upload-offset';
/** How long the store may take to let go of a body once its writer was told to stop. */
const stopGraceMs = 500;

/** Appends a body to an upload, as the only writer; a newer request for the same upload stops it. */
export async function appendUpload(
  parts: UploadParts,
  request: AppendUploadRequest,
  body: Readable,
  context: CallContext,
): Promise<Answer> {
  const upload = await findUpload(parts.reads, request.id, context);
  linkTo(upload.traceparent);
  if (upload.state !== 'open') return appendNothing(upload, request, body);
  await refuseUnread(parts, upload, request, context);
  return parts.appends.run(requireActor(context).userId, async () => {
    const lease = await parts.leases.take(upload.id, context.signal);
    return appendUnder(parts, lease, { upload, request, body }, context);
  });
}

/** What a complete upload takes: nothing more, at its end. */
async function appendNothing(upload: Upload, request: AppendUploadRequest, body: Readable): Promise<Answer> {
  const offset = lengthOf(upload) ?? 0n;
  if (request.length !== undefined && request.length !== offset) throw lengthChanged();
  if (request.offset !== offset || (request.bodyLength ?? 0n) > 0n || !(await isEmpty(body)))
    throw offsetConflict(offset);
  return { offset, expiresAt: timestampFromDate(upload.expires_at), complete: true };
}

async function refuseUnread(
  parts: UploadParts,
  upload: Upload,
  request: AppendUploadRequest,
  context: CallContext,
): Promise<void> {
  const { maxUploadBytes } = parts.settings;
  const length = lengthOf(upload);
  if (request.length !== undefined) {
    if (length !== null && request.length !== length) throw lengthChanged();
    checkLength(request.length, maxUploadBytes, lengthPointer);
  }
  if (request.offset < 0n) throw validationError([{ pointer: offsetPointer, detail: 'must not be negative' }]);
  const limit = length ?? request.length ?? BigInt(maxUploadBytes);
  if (request.offset + (request.bodyLength ?? 0n) <= limit) return;
  // tus has a wrong offset answered as such, however long the body is.
  const offset = await stagedOffset(parts, upload, context);
  if (offset !== null && offset !== request.offset) throw offsetConflict(offset);
  if (offset !== null && limit < offset) throw lengthTooShort(offset);
  throw new AppError('payload_too_large', `The upload ends at ${limit} bytes: send no more than that.`);
}

async function appendUnder(parts: UploadParts, lease: UploadLease, work: Work, context: CallContext): Promise<Answer> {
  let length: bigint | null;
  let offset: bigint;
  try {
    length = await declareLength(parts, work, context);
    const limit = length ?? BigInt(parts.settings.maxUploadBytes);
    offset = await untilStopped(append(parts, lease, work, limit, context), lease.signal);
  } catch (error) {
    // What arrived is kept and counts as a sign of life. A lease that can't be given back runs out.
    await parts.leases.release(lease, parts.settings.expiryMs).catch((failure: unknown) => {
      parts.logger.warn({ err: failure, upload_id: lease.uploadId }, 'The lease of an upload was left to run out.');
    });
    throw await explain(parts, lease, work, error, context);
  }
  const expiresAt = await parts.leases.release(lease, parts.settings.expiryMs);
  if (!expiresAt) throw gone();
  const complete = offset === length;
  if (complete) parts.complete.set(lease.uploadId, true);
  return { offset, expiresAt: timestampFromDate(expiresAt), complete };
}

async function append(
  parts: UploadParts,
  lease: UploadLease,
  { upload, request, body }: Work,
  limit: bigint,
  context: CallContext,
): Promise<bigint> {
  const { checksum } = request;
  const { offset } = await parts.appendStaged(
    {
      backendId: backendOf(upload),
      stagedId: upload.id,
      offset: request.offset,
      limit,
      fence: lease.fence,
      ...(checksum ? { checksumAlgorithm: checksum.algorithm, checksum: checksum.digest } : {}),
    },
    body,
    { ...context, signal: AbortSignal.any([context.signal, lease.signal]) },
  );
  return offset;
}

/** Settles as `writing`, or with `locked` a while after `stop`: from then on a newer writer's fence keeps the store safe. */
async function untilStopped<R>(writing: Promise<R>, stop: AbortSignal): Promise<R> {
  const { promise: overdue, reject } = Promise.withResolvers<never>();
  let timer: NodeJS.Timeout | undefined;
  const onStop = (): void => {
    timer = setTimeout(() => reject(locked()), stopGraceMs);
  };
  if (stop.aborted) onStop();
  else stop.addEventListener('abort', onStop, { once: true });
  try {
    return await Promise.race([writing, overdue]);
  } finally {
    clearTimeout(timer);
    stop.removeEventListener('abort', onStop);
  }
}

/** Declares the length of a deferred upload, once and for all. Gives the length; null while it stays deferred. */
async function declareLength(
  parts: UploadParts,
  { upload, request }: Work,
  context: CallContext,
): Promise<bigint | null> {
  const known = lengthOf(upload);
  const wanted = request.length;
  if (known !== null) return known;
  // Another writer may have declared it since the upload was read, before this one had the lease.
  if (wanted === undefined) return lengthOf(await findUpload(parts.reads, upload.id, context));
  const offset = await stagedOffset(parts, upload, context);
  if (offset === null) throw contentLost();
  // A request that is refused declares nothing.
  if (offset !== request.offset) throw offsetConflict(offset);
  const { rows } = await query(() =>
    sql`
      update upload.uploads set length = ${wanted}
      where id = ${upload.id} and state = 'open' and (length is null or length = ${wanted}) returning id`.execute(
      parts.db,
    ),
  );
  if (rows.length === 0) throw lengthChanged();
  return wanted;
}

/** Says what the client has to know: that it was overtaken, or what became of an upload whose content is not staged any more. */
async function explain(
  parts: UploadParts,
  lease: UploadLease,
  { upload, request }: Work,
  error: unknown,
  context: CallContext,
): Promise<unknown> {
  const missing = error instanceof AppError && error.code === 'not_found';
  if (!missing && !lease.signal.aborted) return error;
  // Throws `gone` where the upload was ended.
  const now = await findUpload(parts.reads, upload.id, context);
  if (!missing) return locked();
  return now.state === 'open' ? contentLost() : offsetConflict(lengthOf(now) ?? request.offset);
}

async function isEmpty(body: Readable): Promise<boolean> {
  for await (const piece of body.iterator({ destroyOnReturn: false })) {
    if (piece.length > 0) return false;
  }
  return true;
}

function lengthChanged(): AppError {
  return validationError([{ pointer: lengthPointer, detail: 'was declared before, as another length' }]);
}

function lengthTooShort(offset: bigint): AppError {
  return validationError([
    { pointer: lengthPointer, detail: `must not be less than the ${offset} bytes that are there` },
  ]);
}

function offsetConflict(offset: bigint): AppError {
  return new AppError('offset_conflict', `The upload goes on at ${offset}.`, { members: { offset: Number(offset) } });
}
