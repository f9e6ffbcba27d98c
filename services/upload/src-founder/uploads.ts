import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { query } from '@stowage/common/database/transaction';
import { AppError } from '@stowage/common/errors';
import type { Actor, CallContext } from '@stowage/common/rpc/context';
import type { Client } from '@stowage/common/rpc/contract';
import type { BlobService } from '@stowage/proto/stowage/backend_registry/v1/blob';
import { OnConflict } from '@stowage/proto/stowage/catalog/v1/node';
import { UploadState } from '@stowage/proto/stowage/upload/v1/upload';
import type { UploadSchema } from '@stowage/proto/stowage/upload/v1/upload';
import type { Kysely } from 'kysely';
import type { Tables, UploadRow } from './tables.ts';

type UploadMessage = MessageInitShape<typeof UploadSchema>;

/** The user of a call; the gateway states one for every upload. */
export function actorOf(context: CallContext): Actor {
  if (!context.actor) throw new AppError('unauthenticated', 'An upload needs a user.');
  return context.actor;
}

/**
 * Finds an upload for its owner or an admin. Throws `not_found` for all others, exactly as for one that never was, and
 * `gone` for one that ended or expired.
 */
export async function findUpload(db: Kysely<Tables>, id: string, context: CallContext): Promise<UploadRow> {
  const { userId, role } = actorOf(context);
  const row = await query(() => db.selectFrom('upload.uploads').selectAll().where('id', '=', id).executeTakeFirst());
  if (!row || (row.user_id !== userId && role !== 'admin')) throw new AppError('not_found', 'There is no upload with this id.');
  const over = row.state === 'ended' || (row.state !== 'finalized' && row.expires_at.getTime() < Date.now());
  if (over) throw new AppError('gone', 'This upload has ended or expired: start a new one.');
  return row;
}

/** The length in bytes, or null while it is deferred. */
export function lengthOf(row: UploadRow): number | null {
  return row.length === null ? null : Number(row.length);
}

/** The durable offset: what is sealed is complete, for all else the store is asked. Throws `gone`, `unavailable`. */
export async function offsetOf(row: UploadRow, blobs: Client<typeof BlobService>, context: CallContext): Promise<number> {
  if (row.sealed_key !== null) return lengthOf(row) ?? 0;
  try {
    const { offset } = await blobs.statStaged({ backendId: row.backend_id, stagedId: row.id }, context);
    return Number(offset);
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== 'not_found') throw error;
    throw new AppError('gone', 'The content of this upload is gone: start a new one.', { cause: error });
  }
}

const states = {
  open: UploadState.OPEN,
  finalizing: UploadState.FINALIZING,
  finalized: UploadState.FINALIZED,
  ended: UploadState.UNSPECIFIED,
} as const;

export function toUpload(row: UploadRow, offset: number): UploadMessage {
  return {
    id: row.id,
    state: states[row.state],
    offset: BigInt(offset),
    ...(row.length === null ? {} : { length: BigInt(row.length) }),
    ...(row.metadata === null ? {} : { metadata: row.metadata }),
    target: {
      ...(row.filename === null ? {} : { filename: row.filename }),
      ...(row.directory_id === null ? {} : { directoryId: row.directory_id }),
      ...(row.media_type === null ? {} : { mediaType: row.media_type }),
      ...(row.file_class === null ? {} : { fileClass: row.file_class }),
      ...(row.sha256 === null ? {} : { sha256: row.sha256 }),
      onConflict: row.on_conflict === 'rename' ? OnConflict.RENAME : OnConflict.FAIL,
    },
    ...(row.state === 'finalized' ? { fileId: row.file_id } : {}),
    createdAt: timestampFromDate(row.created_at),
    expiresAt: timestampFromDate(row.expires_at),
  };
}
