import type { Readable } from 'node:stream';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { violatedConstraint } from '@stowage/common/database/database-error';
import { inTransaction, query } from '@stowage/common/database/transaction';
import { AppError, unavailable, validationError } from '@stowage/common/errors';
import { newId, rootDirectoryId } from '@stowage/common/ids';
import { currentTraceparent } from '@stowage/common/jobs/outbox';
import { withinWait } from '@stowage/common/within-wait';
import type { CallContext } from '@stowage/common/rpc/context';
import type {
  CreateUploadRequest,
  CreateUploadResponseSchema,
  CreateUploadWithBodyRequest,
} from '@stowage/proto/stowage/upload/v1/upload';
import { sql } from 'kysely';
import type { RawBuilder } from 'kysely';
import { endUpload } from './free-content.ts';
import { KeptBody } from './kept-body.ts';
import { fileClassOf } from './media-type.ts';
import type { UploadParts } from './parts.ts';
import { bareMediaType, checkTarget } from './target.ts';
import type { Target } from './target.ts';
import { uploadEvents } from './upload-metrics.ts';
import { requireActor, uploadColumns, uploadMessage } from './uploads.ts';
import type { Upload } from './uploads.ts';

type Answer = MessageInitShape<typeof CreateUploadResponseSchema>;
type StagedUpload = Upload & { backend_id: string };

/** How long a backend may take to begin an upload while another could. */
const patienceMs = 5_000;
const retryAfterSeconds = 60;
/** How often a backend is chosen anew that is deleted before it is used. */
const choicesMax = 3;
/** More than all processes together have database connections. */
const atOnceMax = 500;

interface NewUpload {
  id: string;
  userId: string;
  length: bigint | null;
  metadata: string | null;
  target: Target;
  backendId: string;
}

/**
 * Makes an upload, after refusing what can be refused before the first byte. Its row is committed first, so that no
 * crash leaves staged content that nobody knows of.
 */
export async function createUpload(
  parts: UploadParts,
  request: CreateUploadRequest,
  context: CallContext,
): Promise<Answer> {
  const { upload } = await land(parts, request, context, async ({ id: stagedId, backend_id: backendId }, inTime) => {
    await inTime(parts.blobs.createStaged({ backendId, stagedId }, context));
  });
  return { upload: uploadMessage(upload, 0n) };
}

/**
 * As createUpload, with the first bytes. Takes no lease: nobody else knows of the upload before this answers, which is
 * why only a short body may come here. An upload whose body fails is ended. Where another backend can stand in, the body is
 * kept in memory meanwhile.
 */
export async function createUploadWithBody(
  parts: UploadParts,
  { upload: wanted, bodyLength }: CreateUploadWithBodyRequest,
  body: Readable,
  context: CallContext,
): Promise<Answer> {
  if (!wanted) throw validationError([{ pointer: '/upload', detail: 'is needed' }]);
  const { length } = wanted;
  if (length !== undefined && bodyLength > length) {
    throw new AppError('payload_too_large', `The upload ends at ${length} bytes: send no more than that.`);
  }
  const { userId } = requireActor(context);
  return parts.appends.run(userId, async () => {
    const limit = length ?? BigInt(parts.settings.maxUploadBytes);
    const kept = new KeptBody(body);
    const { upload, result } = await land(parts, wanted, context, async (made, inTime, hasAlternative) => {
      const append = { backendId: made.backend_id, stagedId: made.id, limit, create: true };
      const source = hasAlternative ? await kept.replay() : kept.rest();
      return inTime(parts.appendStaged(append, source, context));
    });
    const { offset } = result;
    if (offset === length) parts.complete.set(upload.id, true);
    return { upload: uploadMessage(upload, offset) };
  });
}

/** The row of a new upload, for which everything was checked that can be, and whether it could land elsewhere too. */
async function addUpload(
  parts: UploadParts,
  request: CreateUploadRequest,
  except: readonly string[],
  context: CallContext,
): Promise<{ upload: StagedUpload; hasAlternative: boolean }> {
  const { userId } = requireActor(context);
  const target = checkTarget(request.target);
  const length = request.length ?? null;
  if (length !== null) checkLength(length, parts.settings.maxUploadBytes, '/length');
  const fileClass = target.fileClass ?? fileClassOf(bareMediaType(target.mediaType));
  const [{ policy }] = await Promise.all([
    parts.policies.getPolicy({ fileClass }, context),
    parts.content.checkDestination({ directoryId: target.directoryId ?? rootDirectoryId }, context),
  ]);
  const wish = {
    backendIds: policy?.backendIds ?? [],
    except: [...except],
    ...(length === null ? {} : { size: length }),
  };
  const upload = { id: newId(), userId, length, metadata: request.metadata ?? null, target };
  for (let attempt = 0; attempt < choicesMax; attempt += 1) {
    const { backendId, hasAlternative } = await parts.blobs.chooseBackend(wish, context);
    const added = await insertUpload(parts, { ...upload, backendId });
    if (added) return { upload: added, hasAlternative };
  }
  throw unavailable('Backends are being deleted just now: try again.', undefined, 1);
}

/** Null where the backend was deleted since it was chosen. */
async function insertUpload(parts: UploadParts, upload: NewUpload): Promise<StagedUpload | null> {
  try {
    return (await insertUnlessMany(parts, upload)) ?? (await insertWithinLimit(parts, upload));
  } catch (error) {
    if (violatedConstraint(error) !== 'uploads_backend_id_fkey') throw error;
    return null;
  }
}

/** Throws `validation_failed` for a negative length, `payload_too_large` for one beyond the limit. */
export function checkLength(length: bigint, maxBytes: number, pointer: string): void {
  if (length < 0n) throw validationError([{ pointer, detail: 'must not be negative' }]);
  if (length <= BigInt(maxBytes)) return;
  throw new AppError('payload_too_large', `An upload may have at most ${maxBytes} bytes.`);
}

/**
 * Without a lock, where the user is so far from the limit that as many at once as there are connections do not reach it:
 * one statement, where taking turns takes four.
 */
async function insertUnlessMany({ db, settings }: UploadParts, upload: NewUpload): Promise<StagedUpload | undefined> {
  const { rows } = await query(() =>
    insertWhileFewer(upload, settings.expiryMs, settings.uploadsPerUser - atOnceMax).execute(db),
  );
  return rows[0];
}

/** Throws `rate_limited` where the user has as many as are allowed. */
async function insertWithinLimit({ db, settings }: UploadParts, upload: NewUpload): Promise<StagedUpload> {
  return inTransaction(db, async (trx) => {
    // One at a time for each user, so that many at once do not pass the limit together.
    await sql`select pg_advisory_xact_lock(hashtextextended(${`upload/${upload.userId}`}, 0))`.execute(trx);
    const { rows } = await insertWhileFewer(upload, settings.expiryMs, settings.uploadsPerUser).execute(trx);
    const [row] = rows;
    if (row) return row;
    const detail = 'You have too many unfinished uploads: finish or delete some, or let them expire.';
    throw new AppError('rate_limited', detail, { members: { retry_after: retryAfterSeconds } });
  });
}

function insertWhileFewer(upload: NewUpload, expiryMs: number, most: number): RawBuilder<StagedUpload> {
  const { id, userId, length, metadata, target, backendId } = upload;
  return sql<StagedUpload>`
    insert into upload.uploads as u (id, user_id, length, metadata, filename, directory_id, media_type, file_class, sha256,
      on_conflict, file_id, blob_id, backend_id, expires_at, traceparent)
    select ${id}::uuid, ${userId}::uuid, ${length}::bigint, ${metadata}::text, ${target.filename}::text,
      ${target.directoryId}::uuid, ${target.mediaType}::text, ${target.fileClass}::text, ${target.sha256}::bytea,
      ${target.onConflict}::text, ${newId()}::uuid, ${newId()}::uuid, ${backendId}::uuid,
      now() + ${expiryMs} * interval '1 ms', ${currentTraceparent()}::text
    where (select count(*) from upload.uploads where user_id = ${userId} and state in ('open', 'finalizing')) < ${most}
    returning ${uploadColumns}`;
}

/**
 * Adds an upload and does what its first answer depends on. A backend that fails it, or hangs, is passed over for the next
 * one: the upload, of which nobody knows yet, ends, and another is made there.
 */
async function land<R>(
  parts: UploadParts,
  request: CreateUploadRequest,
  context: CallContext,
  work: (
    upload: StagedUpload,
    inTime: <T extends object>(call: Promise<T>) => Promise<T>,
    hasAlternative: boolean,
  ) => Promise<R>,
): Promise<{ upload: StagedUpload; result: R }> {
  const except: string[] = [];
  for (;;) {
    const { upload, hasAlternative } = await addUpload(parts, request, except, context);
    try {
      const result = await work(upload, hasAlternative ? withinPatience : (call) => call, hasAlternative);
      uploadEvents.add(1, { event: 'started' });
      return { upload, result };
    } catch (error) {
      await endQuietly(parts, upload);
      if (!hasAlternative || context.signal.aborted || !mayBeItsBackend(error)) throw error;
      parts.logger.warn({ err: error, backend_id: upload.backend_id }, 'An upload did not land there: the next.');
      except.push(upload.backend_id);
    }
  }
}

function mayBeItsBackend(error: unknown): boolean {
  return error instanceof AppError && (error.code === 'unavailable' || error.code === 'insufficient_storage');
}

async function withinPatience<T extends object>(call: Promise<T>): Promise<T> {
  const answer = await withinWait(call, patienceMs);
  if (answer === null) throw unavailable('The backend takes too long.');
  return answer;
}

/** Nobody will ever know of the upload. */
async function endQuietly(parts: UploadParts, { id }: StagedUpload): Promise<void> {
  await endUpload(parts.db, id).catch((failure: unknown) => {
    parts.logger.warn({ err: failure, upload_id: id }, 'An upload that was not made ends by expiry only.');
  });
}
