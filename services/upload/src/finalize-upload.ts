import type { MessageInitShape } from '@bufbuild/protobuf';
import { inTransaction, query } from '@stowage/common/database/transaction';
import { AppError, unavailable, validationError } from '@stowage/common/errors';
import { rootDirectoryId } from '@stowage/common/ids';
import { answeredBefore, idempotent } from '@stowage/common/jobs/idempotency';
import type { CallContext } from '@stowage/common/rpc/context';
import { linkTo } from '@stowage/common/runtime/spans';
import { NodeKind, OnConflict } from '@stowage/proto/stowage/catalog/v1/node';
import { FinalizeUploadResponseSchema } from '@stowage/proto/stowage/upload/v1/upload';
import type { FinalizeUploadRequest } from '@stowage/proto/stowage/upload/v1/upload';
import { sql } from 'kysely';
import type { QueryExecutorProvider } from 'kysely';
import { contentLost, stagedOffset } from './get-upload.ts';
import { detectMediaType, fileClassOf } from './media-type.ts';
import type { UploadParts } from './parts.ts';
import { sealUpload, waitLeftMs } from './seal-upload.ts';
import type { SealedUpload } from './seal-upload.ts';
import { checkTarget } from './target.ts';
import type { Target } from './target.ts';
import { uploadEvents } from './upload-metrics.ts';
import { findUpload, lengthOf, onConflicts } from './uploads.ts';
import type { Upload } from './uploads.ts';

type Answer = MessageInitShape<typeof FinalizeUploadResponseSchema>;

/** What the file is to be, all of it decided. */
interface FinalTarget extends Target {
  filename: string;
  directoryId: string;
}

/** With what its content turned out to be. */
interface DescribedTarget extends FinalTarget {
  mediaType: string;
  fileClass: string;
}

const commitTimeoutMs = 15_000;

/**
 * Makes a file of a complete upload. Every step may be repeated, after a crash too: ids were allocated at creation, and
 * catalog decides which of two at the same moment makes the file. No file in the answer: the content is still read back.
 */
export async function finalizeUpload(
  parts: UploadParts,
  request: FinalizeUploadRequest,
  context: CallContext,
): Promise<Answer> {
  const startedAt = performance.now();
  const before = await query(() => answeredBefore(parts.reads, context, FinalizeUploadResponseSchema));
  if (before) return before;
  const upload = await findUpload(parts.reads, request.id, context);
  linkTo(upload.traceparent);
  if (upload.state === 'finalized') return presentFile(parts, upload, context);
  const target = finalTarget(upload, checkTarget(request.target));
  if (upload.state === 'open' && !parts.complete.has(upload.id)) await requireComplete(parts, upload, context);
  if (!(await beginFinalizing(parts, upload.id))) return overtaken(parts, upload.id, context);
  const sealed = await sealUpload(parts, upload, target.sha256, startedAt, context);
  if (!sealed) return { created: false };
  const mediaType = await detectMediaType(sealed.head, target.mediaType, target.filename);
  const described = { ...target, mediaType, fileClass: target.fileClass ?? fileClassOf(mediaType) };
  const waitMs = waitLeftMs(startedAt);
  const holders = await parts.copies.make(upload.blob_id, described.fileClass, sealed, waitMs, context);
  if (!holders) return { created: false };
  const file = await commitFile(parts, upload, described, { ...sealed, holders }, context);
  // Whoever ends the upload has made the file: of many at once, and after a lost answer of catalog's, that is one.
  const finish = async (db: QueryExecutorProvider): Promise<Answer> => ({
    file,
    created: await markFinalized(db, upload.id, parts.settings.expiryMs),
  });
  const answer = await (context.idempotency
    ? inTransaction(parts.db, (trx) => idempotent(trx, context, FinalizeUploadResponseSchema, () => finish(trx)))
    : query(() => finish(parts.db)));
  if (answer.created) uploadEvents.add(1, { event: 'finalized' });
  return answer;
}

/** The file as it is now. Not by CommitFile: that could make anew what was deleted for good since. */
async function presentFile({ db, tree }: UploadParts, upload: Upload, context: CallContext): Promise<Answer> {
  // The key of a request that finished since was kept with the state that led here.
  const first = await query(() => answeredBefore(db, context, FinalizeUploadResponseSchema));
  if (first) return first;
  try {
    const { node } = await tree.getNode({ id: upload.file_id, kind: NodeKind.FILE }, context);
    return { ...(node ? { file: node } : {}), created: false };
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== 'not_found') throw error;
    throw new AppError('gone', 'The file that this upload became was deleted for good.');
  }
}

/** Another request finished or ended the upload since it was read. */
async function overtaken(parts: UploadParts, id: string, context: CallContext): Promise<Answer> {
  const now = await findUpload(parts.reads, id, context);
  if (now.state === 'finalized') return presentFile(parts, now, context);
  throw unavailable('Another request changed the upload meanwhile: try again.', undefined, 1);
}

/** What is said now goes before what was said at creation. */
function finalTarget(upload: Upload, now: Target): FinalTarget {
  const filename = now.filename ?? upload.filename;
  if (filename === null) {
    throw validationError([{ pointer: '/filename', detail: 'is needed: it was not given at creation' }]);
  }
  return {
    filename,
    directoryId: now.directoryId ?? upload.directory_id ?? rootDirectoryId,
    mediaType: now.mediaType ?? upload.media_type,
    fileClass: now.fileClass ?? upload.file_class,
    sha256: now.sha256 ?? upload.sha256,
    onConflict: now.onConflict ?? upload.on_conflict,
  };
}

/**
 * Throws `upload_incomplete` while bytes are missing. Asked before the state changes, so that an upload is never seen as
 * complete that is not. Content that is not staged any more may have been sealed by a request whose answer was lost:
 * sealing again tells.
 */
async function requireComplete(parts: UploadParts, upload: Upload, context: CallContext): Promise<void> {
  const length = lengthOf(upload);
  const offset = await stagedOffset(parts, upload, context);
  if (length !== null && (offset === length || offset === null)) return;
  if (offset === null) throw contentLost();
  const missing = length === null ? 'its length is not known yet' : `it has ${offset} of ${length} bytes`;
  throw new AppError('upload_incomplete', `The upload is not complete: ${missing}.`, {
    members: { offset: Number(offset), length: length === null ? null : Number(length) },
  });
}

/** From here on expiry leaves it alone for its whole time. False where it has ended or become a file. */
async function beginFinalizing({ db, settings }: UploadParts, id: string): Promise<boolean> {
  const { numAffectedRows } = await query(() =>
    sql`
      update upload.uploads set state = 'finalizing', expires_at = now() + ${settings.expiryMs} * interval '1 ms'
      where id = ${id} and state in ('open', 'finalizing') and length is not null`.execute(db),
  );
  return numAffectedRows === 1n;
}

async function commitFile(
  { content }: UploadParts,
  upload: Upload,
  target: DescribedTarget,
  sealed: SealedUpload & { holders: readonly string[] },
  context: CallContext,
): Promise<NonNullable<Answer['file']>> {
  const { file } = await content.commitFile(
    {
      fileId: upload.file_id,
      directoryId: target.directoryId,
      name: target.filename,
      onConflict: target.onConflict === null ? OnConflict.FAIL : onConflicts[target.onConflict],
      mediaType: target.mediaType,
      fileClass: target.fileClass,
      blob: { id: upload.blob_id, size: sealed.size, sha256: sealed.sha256, chunkCrc32c: sealed.chunkCrc32c },
      replicas: sealed.holders.map((backendId) => ({ backendId, key: sealed.key })),
    },
    context,
    { timeoutMs: commitTimeoutMs },
  );
  if (!file) throw new Error('catalog answered CommitFile without a file');
  return file;
}

/**
 * The file's own rows keep the rest from now on. False where another request was first. Also of an upload that is open
 * again: another finalize asked for another checksum meanwhile, but the file is made.
 */
async function markFinalized(db: QueryExecutorProvider, id: string, keepMs: number): Promise<boolean> {
  const { numAffectedRows } = await sql`
    update upload.uploads set state = 'finalized', expires_at = now() + ${keepMs} * interval '1 ms', backend_id = null,
      sealed_chunk_crc32c = null, sealed_head = null
    where id = ${id} and state in ('open', 'finalizing')`.execute(db);
  return numAffectedRows === 1n;
}
