import type { MessageInitShape, MessageShape } from '@bufbuild/protobuf';
import { inTransaction, query } from '@stowage/common/database/transaction';
import { AppError } from '@stowage/common/errors';
import { rootDirectoryId } from '@stowage/common/ids';
import { answeredBefore, idempotent } from '@stowage/common/jobs/idempotency';
import { normalizeName } from '@stowage/common/names';
import type { CallContext } from '@stowage/common/rpc/context';
import type { Client } from '@stowage/common/rpc/contract';
import type { BlobService } from '@stowage/proto/stowage/backend_registry/v1/blob';
import type { CommitFileResponse, ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import { OnConflict } from '@stowage/proto/stowage/catalog/v1/node';
import { FinalizeUploadResponseSchema } from '@stowage/proto/stowage/upload/v1/upload';
import type { UploadTarget } from '@stowage/proto/stowage/upload/v1/upload';
import type { Kysely } from 'kysely';
import { filenameMissing } from './create-upload.ts';
import { detectMediaType, fileClassOf } from '../src/media-type.ts';
import type { UploadSettings } from './settings.ts';
import type { Tables, UploadRow } from './tables.ts';
import { findUpload, lengthOf, offsetOf } from './uploads.ts';

interface Needs {
  db: Kysely<Tables>;
  settings: UploadSettings;
  content: Client<typeof ContentService>;
  blobs: Client<typeof BlobService>;
}

type Response = MessageShape<typeof FinalizeUploadResponseSchema>;

/** How long a client waits for a seal before it is told to ask again; contract §5. */
const sealWaitMs = 25_000;
const sealTimeoutMs = sealWaitMs + 10_000;

/**
 * Makes a file of a complete upload. Every step can be repeated, by whoever and at any moment: the ids of file and blob
 * were allocated when the upload was made, so a repeat finds what was done.
 */
export async function finalizeUpload(
  needs: Needs,
  request: { id: string; target: UploadTarget | undefined },
  context: CallContext,
): Promise<MessageInitShape<typeof FinalizeUploadResponseSchema>> {
  const before = await query(() => answeredBefore(needs.db, context, FinalizeUploadResponseSchema));
  if (before) return before;
  const wanted = wantedFile(await findUpload(needs.db, request.id, context), request.target);
  const claimed = await claim(needs, request.id, context);
  const row = claimed.sealed_key === null ? await seal(needs, claimed, wanted.sha256, context) : claimed;
  if (row === null) return { created: false };
  checkSealed(row, wanted.sha256);
  const committed = await commit(needs, row, wanted, context);
  return markFinalized(needs, row, committed, context);
}

/** What the file shall be: what the request says goes before what was said at creation. */
interface WantedFile {
  name: string;
  directoryId: string;
  fileClass: string | null;
  sha256: Uint8Array | null;
  onConflict: OnConflict;
}

function wantedFile(row: UploadRow, target: UploadTarget | undefined): WantedFile {
  const name = target?.filename ?? row.filename;
  if (name === null) throw filenameMissing();
  const stored = row.on_conflict === 'rename' ? OnConflict.RENAME : OnConflict.FAIL;
  const asked = target?.onConflict ?? OnConflict.UNSPECIFIED;
  return {
    name: normalizeName(name, '/filename'),
    directoryId: target?.directoryId ?? row.directory_id ?? rootDirectoryId,
    fileClass: target?.fileClass ?? row.file_class,
    sha256: target?.sha256 ?? row.sha256,
    onConflict: asked === OnConflict.UNSPECIFIED ? stored : asked,
  };
}

/** From here on neither expiry nor termination takes the upload. Throws `upload_incomplete`, and `gone` where they were first. */
async function claim({ db, settings, blobs }: Needs, id: string, context: CallContext): Promise<UploadRow> {
  const row = await findUpload(db, id, context);
  const length = lengthOf(row);
  if (row.sealed_key === null && row.state === 'open') {
    const offset = await offsetOf(row, blobs, context);
    if (length === null || offset < length) throw incomplete(offset, length);
  }
  const expiresAt = new Date(Date.now() + settings.expiryMs);
  const claimed = await query(() =>
    db
      .updateTable('upload.uploads')
      .set((eb) => ({
        state: eb.case().when('state', '=', 'finalized').then('finalized' as const).else('finalizing' as const).end(),
        expires_at: expiresAt,
      }))
      .where('id', '=', id)
      .where('state', '!=', 'ended')
      .returningAll()
      .executeTakeFirst(),
  );
  if (!claimed) throw new AppError('gone', 'This upload has ended: start a new one.');
  return claimed;
}

/** Seals the content and notes what was found; null while that takes longer than a client should wait. */
async function seal(needs: Needs, row: UploadRow, sha256: Uint8Array | null, context: CallContext): Promise<UploadRow | null> {
  const size = BigInt(row.length ?? 0);
  const expected = sha256 === null ? {} : { sha256 };
  const request = { backendId: row.backend_id, stagedId: row.id, blobId: row.blob_id, size, ...expected, waitMs: sealWaitMs };
  try {
    const { blob } = await needs.blobs.sealBlob(request, context, { timeoutMs: sealTimeoutMs });
    if (!blob) return null;
    return await query(() =>
      needs.db
        .updateTable('upload.uploads')
        .set({
          sealed_key: blob.key,
          sealed_sha256: Buffer.from(blob.sha256),
          sealed_chunk_crc32c: Buffer.from(blob.chunkCrc32c),
          sealed_head: Buffer.from(blob.head),
        })
        .where('id', '=', row.id)
        .returningAll()
        .executeTakeFirstOrThrow(),
    );
  } catch (error) {
    if (error instanceof AppError && staysOpen.has(error.code)) await reopen(needs.db, row.id);
    throw error;
  }
}

/** Refusals after which the content is staged as before, so that the client may go on or give it up. */
const staysOpen = new Set(['checksum_mismatch', 'upload_incomplete']);

async function reopen(db: Kysely<Tables>, id: string): Promise<void> {
  await query(() =>
    db
      .updateTable('upload.uploads')
      .set({ state: 'open' })
      .where('id', '=', id)
      .where('state', '=', 'finalizing')
      .where('sealed_key', 'is', null)
      .execute(),
  );
}

function checkSealed(row: UploadRow, sha256: Uint8Array | null): void {
  if (sha256 === null || row.sealed_sha256 === null || row.sealed_sha256.equals(sha256)) return;
  throw new AppError('checksum_mismatch', 'The content does not have the sha256 that was given.');
}

async function commit(needs: Needs, row: UploadRow, wanted: WantedFile, context: CallContext): Promise<CommitFileResponse> {
  const { sealed_key: key, sealed_sha256: sha256, sealed_chunk_crc32c: chunkCrc32c, sealed_head: head } = row;
  if (key === null || sha256 === null || chunkCrc32c === null || head === null) throw new Error(`upload ${row.id} is not sealed`);
  const mediaType = await detectMediaType(head, row.media_type, wanted.name);
  return needs.content.commitFile(
    {
      fileId: row.file_id,
      directoryId: wanted.directoryId,
      name: wanted.name,
      onConflict: wanted.onConflict,
      mediaType,
      fileClass: wanted.fileClass ?? fileClassOf(mediaType),
      blob: { id: row.blob_id, size: BigInt(row.length ?? 0), sha256, chunkCrc32c },
      replicas: [{ backendId: row.backend_id, key }],
    },
    context,
  );
}

async function markFinalized({ db }: Needs, row: UploadRow, { file, created }: CommitFileResponse, context: CallContext): Promise<Response> {
  return inTransaction(db, (trx) =>
    idempotent(trx, context, FinalizeUploadResponseSchema, async () => {
      await trx.updateTable('upload.uploads').set({ state: 'finalized' }).where('id', '=', row.id).execute();
      return { ...(file ? { file } : {}), created };
    }),
  );
}

function incomplete(offset: number, length: number | null): AppError {
  return new AppError('upload_incomplete', 'Some bytes are still missing.', { members: { offset, length } });
}
