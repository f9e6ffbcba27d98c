import { sql } from 'kysely';
import type { Kysely } from 'kysely';
import { query } from '@stowage/common/database/transaction';
import { AppError, validationError } from '@stowage/common/errors';
import { newId, rootDirectoryId } from '@stowage/common/ids';
import { normalizeName } from '@stowage/common/names';
import type { CallContext } from '@stowage/common/rpc/context';
import type { Client } from '@stowage/common/rpc/contract';
import type { BlobService } from '@stowage/proto/stowage/backend_registry/v1/blob';
import type { ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import { OnConflict } from '@stowage/proto/stowage/catalog/v1/node';
import type { PolicyService } from '@stowage/proto/stowage/placement/v1/policy';
import type { CreateUploadRequest } from '@stowage/proto/stowage/upload/v1/upload';
import { fileClassOf } from '../src/media-type.ts';
import type { UploadSettings } from './settings.ts';
import type { Tables, UploadRow } from './tables.ts';
import { actorOf } from './uploads.ts';

interface Needs {
  db: Kysely<Tables>;
  settings: UploadSettings;
  content: Client<typeof ContentService>;
  policies: Client<typeof PolicyService>;
  blobs: Client<typeof BlobService>;
}

/**
 * Makes an upload: what can be refused is refused now, not after 40 GB. The row comes before the staged content, so that
 * whatever a crash leaves is found by expiry.
 */
export async function createUpload(needs: Needs, request: CreateUploadRequest, context: CallContext): Promise<UploadRow> {
  const { db, settings, content, policies, blobs } = needs;
  const target = targetOf(request);
  const length = request.length === undefined ? null : Number(request.length);
  if (length !== null && length > settings.maxUploadBytes) {
    throw new AppError('payload_too_large', `An upload may have ${settings.maxUploadBytes} bytes at most.`);
  }
  const fileClass = target.file_class ?? (target.media_type === null ? 'other' : fileClassOf(target.media_type));
  const [, { policy }] = await Promise.all([
    content.checkDestination({ directoryId: target.directory_id ?? rootDirectoryId }, context),
    policies.getPolicy({ fileClass }, context),
  ]);
  const backendIds = policy?.backendIds ?? [];
  const [wished] = backendIds;
  if (wished === undefined) throw new Error(`the policy of ${fileClass} names no backend`);
  const row = await insert(needs, { ...target, length, backend_id: wished }, context);
  try {
    const size = length === null ? {} : { size: BigInt(length) };
    const { backendId } = await blobs.openStaged({ stagedId: row.id, backendIds, ...size }, context);
    if (backendId === row.backend_id) return row;
    await query(() => db.updateTable('upload.uploads').set({ backend_id: backendId }).where('id', '=', row.id).execute());
    return { ...row, backend_id: backendId };
  } catch (error) {
    // Nothing was staged that the client could ever name.
    await query(() => db.updateTable('upload.uploads').set({ state: 'ended', expires_at: new Date() }).where('id', '=', row.id).execute());
    throw error;
  }
}

type Target = Pick<UploadRow, 'metadata' | 'filename' | 'directory_id' | 'media_type' | 'file_class' | 'sha256' | 'on_conflict'>;

function targetOf({ metadata, target }: CreateUploadRequest): Target {
  const mediaType = target?.mediaType ?? null;
  return {
    metadata: metadata ?? null,
    filename: target?.filename === undefined ? null : checkedFilename(target.filename),
    directory_id: target?.directoryId ?? null,
    media_type: mediaType,
    file_class: target?.fileClass ?? null,
    sha256: target?.sha256 === undefined ? null : Buffer.from(target.sha256),
    on_conflict: target?.onConflict === OnConflict.RENAME ? 'rename' : 'fail',
  };
}

function checkedFilename(filename: string): string {
  return normalizeName(filename, '/headers/upload-metadata');
}

/** Inserts the row unless the user has too many open uploads; the count is bounded by the limit itself. */
async function insert(
  { db, settings }: Needs,
  upload: Target & { length: number | null; backend_id: string },
  context: CallContext,
): Promise<UploadRow> {
  const { userId } = actorOf(context);
  const { rows } = await query(() =>
    sql<UploadRow>`
      insert into upload.uploads (id, user_id, length, metadata, filename, directory_id, media_type, file_class, sha256,
        on_conflict, file_id, blob_id, backend_id, expires_at)
      select ${newId()}, ${userId}, ${upload.length}, ${upload.metadata}, ${upload.filename}, ${upload.directory_id},
        ${upload.media_type}, ${upload.file_class}, ${upload.sha256}, ${upload.on_conflict}, ${newId()}, ${newId()},
        ${upload.backend_id}, now() + ${settings.expiryMs} * interval '1 ms'
      where (select count(*) from (select 1 from upload.uploads where user_id = ${userId}
        and state in ('open', 'finalizing') limit ${settings.uploadsPerUser}) open_uploads) < ${settings.uploadsPerUser}
      returning *`.execute(db),
  );
  const row = rows[0];
  if (row) return row;
  throw new AppError('rate_limited', `You have ${settings.uploadsPerUser} unfinished uploads: finish or end some first.`, {
    members: { retry_after: 60 },
  });
}

/** A 400 for a filename that is needed and missing. */
export function filenameMissing(): AppError {
  return validationError([{ pointer: '/filename', detail: 'is needed: neither the upload nor this request has one' }]);
}
