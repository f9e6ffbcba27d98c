import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { MessageInitShape } from '@bufbuild/protobuf';
import type { appendStaged, Uploader } from '@stowage/common/bytes/operations';
import { query } from '@stowage/common/database/transaction';
import { AppError, validationError } from '@stowage/common/errors';
import type { CallContext } from '@stowage/common/rpc/context';
import type { Client } from '@stowage/common/rpc/contract';
import type { Logger } from '@stowage/common/runtime/logger';
import type { BlobService } from '@stowage/proto/stowage/backend_registry/v1/blob';
import type { AppendUploadRequest, AppendUploadResponseSchema } from '@stowage/proto/stowage/upload/v1/upload';
import type { Kysely } from 'kysely';
import type { Readable } from 'node:stream';
import type { Leases } from './leases.ts';
import type { UploadSettings } from './settings.ts';
import type { Tables, UploadRow } from './tables.ts';
import { actorOf, findUpload, lengthOf, offsetOf } from './uploads.ts';

interface Needs {
  db: Kysely<Tables>;
  settings: UploadSettings;
  leases: Leases;
  running: RunningAppends;
  blobs: Client<typeof BlobService>;
  appendStaged: Uploader<typeof appendStaged.input, typeof appendStaged.output>;
  logger: Logger;
}

type Response = MessageInitShape<typeof AppendUploadResponseSchema>;

/** How many bodies each user sends right now, in this process. */
export class RunningAppends {
  readonly #limit: number;
  readonly #counts = new Map<string, number>();

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Throws `rate_limited` above the limit. */
  async run<T>(userId: string, work: () => Promise<T>): Promise<T> {
    const count = this.#counts.get(userId) ?? 0;
    if (count >= this.#limit) {
      throw new AppError('rate_limited', `You send ${this.#limit} bodies already.`, { members: { retry_after: 1 } });
    }
    this.#counts.set(userId, count + 1);
    try {
      return await work();
    } finally {
      const left = (this.#counts.get(userId) ?? 1) - 1;
      if (left === 0) this.#counts.delete(userId);
      else this.#counts.set(userId, left);
    }
  }
}

/** Appends a body to an upload under its lease; what arrived before a broken connection counts. */
export async function appendUpload(
  needs: Needs,
  request: AppendUploadRequest,
  body: Readable,
  context: CallContext,
): Promise<Response> {
  const found = await findUpload(needs.db, request.id, context);
  return needs.running.run(actorOf(context).userId, async () => {
    const row = await declareLength(needs, found, request);
    checkLength(needs.settings, row, request);
    if (row.state !== 'open') return appendToNone(needs, row, request, context);
    const lease = await needs.leases.take(row.id, context.signal);
    let expiresAt: Date | null = null;
    let offset: number;
    try {
      offset = await append(needs, row, request, body, { ...context, signal: AbortSignal.any([context.signal, lease.signal]) }, lease.fence);
    } catch (error) {
      // The client is told to come again and finds the offset by HEAD, whichever of the two made it stop.
      throw lease.signal.aborted && !context.signal.aborted ? stopped(error) : error;
    } finally {
      expiresAt = await releaseQuietly(needs, row.id, () => lease.release());
    }
    return response(row, offset, expiresAt ?? row.expires_at);
  });
}

async function append(
  needs: Needs,
  row: UploadRow,
  request: AppendUploadRequest,
  body: Readable,
  context: CallContext,
  fence: bigint,
): Promise<number> {
  const { checksum } = request;
  const { offset } = await needs.appendStaged(
    {
      backendId: row.backend_id,
      stagedId: row.id,
      offset: request.offset,
      limit: BigInt(lengthOf(row) ?? needs.settings.maxUploadBytes),
      fence,
      ...(checksum ? { checksumAlgorithm: checksum.algorithm, checksum: checksum.digest } : {}),
    },
    body,
    context,
  );
  return Number(offset);
}

/** The bytes count, whatever becomes of the lease: a lease that can't be released runs out by itself. */
async function releaseQuietly(needs: Needs, uploadId: string, release: () => Promise<Date | null>): Promise<Date | null> {
  try {
    return await release();
  } catch (error) {
    needs.logger.warn({ err: error, upload_id: uploadId }, 'A lease could not be given back; it runs out.');
    return null;
  }
}

/** A deferred length is told once, and never becomes another one. */
async function declareLength({ db }: Needs, row: UploadRow, request: AppendUploadRequest): Promise<UploadRow> {
  if (request.length === undefined) return row;
  const length = String(request.length);
  if (row.length === null) {
    const changed = await query(() =>
      db
        .updateTable('upload.uploads')
        .set({ length })
        .where('id', '=', row.id)
        .where('length', 'is', null)
        .where('state', '=', 'open')
        .returningAll()
        .executeTakeFirst(),
    );
    if (changed) return changed;
  }
  if (row.length !== length) throw validationError([{ pointer: '/headers/upload-length', detail: 'can not be changed any more' }]);
  return row;
}

function checkLength(settings: UploadSettings, row: UploadRow, request: AppendUploadRequest): void {
  const limit = lengthOf(row) ?? settings.maxUploadBytes;
  if (limit > settings.maxUploadBytes) throw tooLarge(`An upload may have ${settings.maxUploadBytes} bytes at most.`);
  const end = Number(request.offset + (request.bodyLength ?? 0n));
  if (end > limit) throw tooLarge('The body is longer than the rest of the upload.');
}

/** An upload that is being finalized, or was, is complete: only nothing can be appended to it. */
async function appendToNone(needs: Needs, row: UploadRow, request: AppendUploadRequest, context: CallContext): Promise<Response> {
  const offset = await offsetOf(row, needs.blobs, context);
  const nothing = request.bodyLength === 0n && Number(request.offset) === offset;
  if (nothing) return response(row, offset, row.expires_at);
  throw new AppError('offset_conflict', 'This upload is complete already.', { members: { offset } });
}

function response(row: UploadRow, offset: number, expiresAt: Date): Response {
  return { offset: BigInt(offset), expiresAt: timestampFromDate(expiresAt), complete: offset === lengthOf(row) };
}

function stopped(cause: unknown): AppError {
  return new AppError('locked', 'Another request took this upload over: ask for its offset.', { members: { retry_after: 1 }, cause });
}

function tooLarge(detail: string): AppError {
  return new AppError('payload_too_large', detail);
}
