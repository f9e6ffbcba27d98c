import { query } from '@stowage/common/database/transaction';
import { AppError } from '@stowage/common/errors';
import type { CallContext } from '@stowage/common/rpc/context';
import type { SealedBlob } from '@stowage/proto/stowage/backend_registry/v1/blob';
import { sql } from 'kysely';
import { contentLost } from './get-upload.ts';
import type { Db, UploadParts } from './parts.ts';
import { backendOf, lengthOf } from './uploads.ts';
import type { Upload } from './uploads.ts';

/** Sealed content: where it lies and what was found in it. */
export interface SealedUpload {
  backendId: string;
  key: string;
  size: bigint;
  sha256: Buffer;
  chunkCrc32c: Buffer;
  head: Buffer;
}

/** After how long a finalize that still reads content back is answered with "not yet". */
const answerWithinMs = 25_000;
const leastWaitMs = 1_000;
/** What is not longer is rather read again after a crash than noted each time. */
const readAgainBytes = 8n * 1024n * 1024n;
/** What the call may take beyond the wait that it was asked for. */
const callMarginMs = 8_000;

/**
 * Seals an upload that is finalizing, or takes what an earlier seal found. Null while that goes on. Throws
 * `checksum_mismatch`, `upload_incomplete`, `gone` (the content was lost) and `unavailable`; after the first two an
 * upload that is not sealed is open again.
 */
export async function sealUpload(
  parts: UploadParts,
  upload: Upload,
  sha256: Buffer | null,
  startedAt: number,
  context: CallContext,
): Promise<SealedUpload | null> {
  const size = lengthOf(upload);
  if (size === null) throw new Error(`upload ${upload.id} is finalizing without a length`);
  const known = upload.sealed_key === null ? null : await readSealed(parts.reads, upload, size);
  if (known) return checked(known, sha256);
  const waitMs = waitLeftMs(startedAt);
  const blob = await seal(parts, upload, { size, sha256, waitMs }, context);
  if (!blob) return null;
  const sealed = {
    backendId: backendOf(upload),
    key: blob.key,
    size,
    sha256: Buffer.from(blob.sha256),
    chunkCrc32c: Buffer.from(blob.chunkCrc32c),
    head: Buffer.from(blob.head),
  };
  if (size > readAgainBytes) await noteSealed(parts.db, upload.id, sealed);
  return checked(sealed, sha256);
}

/** How long a finalize that began at `startedAt` may still wait before it is answered with "not yet". */
export function waitLeftMs(startedAt: number): number {
  return Math.max(leastWaitMs, Math.round(answerWithinMs - (performance.now() - startedAt)));
}

async function seal(
  parts: UploadParts,
  upload: Upload,
  wanted: { size: bigint; sha256: Buffer | null; waitMs: number },
  context: CallContext,
): Promise<SealedBlob | undefined> {
  const { size, sha256, waitMs } = wanted;
  const ids = { backendId: backendOf(upload), stagedId: upload.id, blobId: upload.blob_id };
  try {
    const request = { ...ids, size, waitMs, ...(sha256 ? { sha256 } : {}) };
    return (await parts.blobs.sealBlob(request, context, { timeoutMs: waitMs + callMarginMs })).blob;
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    if (error.code === 'not_found') throw contentLost();
    const mismatch = error.code === 'checksum_mismatch';
    if ((mismatch && error.members['sealed'] !== true) || error.code === 'upload_incomplete') {
      parts.complete.delete(upload.id);
      await reopen(parts.db, upload.id);
    }
    throw mismatch ? checksumMismatch() : error;
  }
}

async function readSealed(db: Db, upload: Upload, size: bigint): Promise<SealedUpload | null> {
  const { rows } = await query(() =>
    sql<{ key: string; sha256: Buffer; chunk_crc32c: Buffer; head: Buffer }>`
      select sealed_key as key, sealed_sha256 as sha256, sealed_chunk_crc32c as chunk_crc32c, sealed_head as head
      from upload.uploads where id = ${upload.id} and sealed_chunk_crc32c is not null`.execute(db),
  );
  const [row] = rows;
  if (!row) return null;
  const { key, sha256, chunk_crc32c: chunkCrc32c, head } = row;
  return { backendId: backendOf(upload), size, key, sha256, chunkCrc32c, head };
}

/** Content that was moved to its final place stays finalizing, whatever another request made of the state meanwhile. */
async function noteSealed(db: Db, id: string, sealed: SealedUpload): Promise<void> {
  await query(() =>
    sql`
      update upload.uploads set state = 'finalizing', sealed_key = ${sealed.key}, sealed_sha256 = ${sealed.sha256},
        sealed_chunk_crc32c = ${sealed.chunkCrc32c}, sealed_head = ${sealed.head}
      where id = ${id} and state in ('open', 'finalizing')`.execute(db),
  );
}

async function reopen(db: Db, id: string): Promise<void> {
  await query(() =>
    sql`
      update upload.uploads set state = 'open'
      where id = ${id} and state = 'finalizing' and sealed_key is null`.execute(db),
  );
}

function checked(sealed: SealedUpload, sha256: Buffer | null): SealedUpload {
  if (sha256 === null || sealed.sha256.equals(sha256)) return sealed;
  throw checksumMismatch();
}

function checksumMismatch(): AppError {
  return new AppError('checksum_mismatch', 'The content does not have the sha256 that was given.');
}
