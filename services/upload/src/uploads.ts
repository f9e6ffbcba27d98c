import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { query } from '@stowage/common/database/transaction';
import { AppError } from '@stowage/common/errors';
import { isId } from '@stowage/common/ids';
import type { Actor, CallContext } from '@stowage/common/rpc/context';
import { OnConflict } from '@stowage/proto/stowage/catalog/v1/node';
import { UploadState } from '@stowage/proto/stowage/upload/v1/upload';
import type { UploadSchema } from '@stowage/proto/stowage/upload/v1/upload';
import { sql } from 'kysely';
import type { Db } from './parts.ts';

/** The states in which a client can do something with an upload. */
const states = {
  open: UploadState.OPEN,
  finalizing: UploadState.FINALIZING,
  finalized: UploadState.FINALIZED,
} as const;

export const onConflicts = { fail: OnConflict.FAIL, rename: OnConflict.RENAME } as const;

interface UploadRow {
  id: string;
  state: string;
  /** In bytes; null while deferred. */
  length: string | null;
  metadata: string | null;
  filename: string | null;
  directory_id: string | null;
  media_type: string | null;
  file_class: string | null;
  sha256: Buffer | null;
  on_conflict: keyof typeof onConflicts | null;
  file_id: string;
  blob_id: string;
  backend_id: string | null;
  /** Set where the content is known to lie sealed on the backend; unset says nothing. */
  sealed_key: string | null;
  created_at: Date;
  expires_at: Date;
  /** Of the request that made it. */
  traceparent: string | null;
}

/** An upload that is neither expired nor ended. */
export interface Upload extends UploadRow {
  state: keyof typeof states;
}

/** The columns of UploadRow, from `upload.uploads u`. */
export const uploadColumns = sql`u.id, u.state, u.length, u.metadata, u.filename, u.directory_id, u.media_type,
  u.file_class, u.sha256, u.on_conflict, u.file_id, u.blob_id, u.backend_id, u.sealed_key, u.created_at, u.expires_at,
  u.traceparent`;

/** True for an upload `u` that somebody is writing to: it does not expire meanwhile. */
export const isBeingWritten = sql`exists (
  select from upload.leases l where l.upload_id = u.id and l.expires_at > now())`;

/** The user on whose behalf a call is made. */
export function requireActor(context: CallContext): Actor {
  if (!context.actor) throw new AppError('unauthenticated', 'Log in first.');
  return context.actor;
}

/**
 * Reads an upload of the caller's. Throws `not_found`, the same for an unknown one and for another's, and `gone` for one
 * that expired or was ended.
 */
export async function findUpload(db: Db, id: string, context: CallContext): Promise<Upload> {
  return findUploadOf(db, id, context, (upload, actor) => upload.user_id === actor.userId);
}

/** As findUpload, for an admin anybody's: to look at, never to change. */
export async function findVisibleUpload(db: Db, id: string, context: CallContext): Promise<Upload> {
  return findUploadOf(db, id, context, (upload, { userId, role }) => upload.user_id === userId || role === 'admin');
}

async function findUploadOf(
  db: Db,
  id: string,
  context: CallContext,
  mayFind: (upload: FoundRow, actor: Actor) => boolean,
): Promise<Upload> {
  const actor = requireActor(context);
  const upload = isId(id) ? await readUpload(db, id) : undefined;
  if (!upload || !mayFind(upload, actor)) throw new AppError('not_found', 'There is no such upload.');
  if (!isLive(upload) || upload.expired) throw gone();
  return upload;
}

export function gone(): AppError {
  return new AppError('gone', 'The upload has ended or expired: start a new one.');
}

type FoundRow = UploadRow & { user_id: string; expired: boolean };

async function readUpload(db: Db, id: string): Promise<FoundRow | undefined> {
  const { rows } = await query(() =>
    sql<FoundRow>`
      select ${uploadColumns}, u.user_id, u.state = 'open' and u.expires_at <= now() and not ${isBeingWritten} as expired
      from upload.uploads u where u.id = ${id}`.execute(db),
  );
  return rows[0];
}

function isLive<U extends UploadRow>(upload: U): upload is U & Upload {
  return Object.hasOwn(states, upload.state);
}

/** The backend that holds the staged content. Throws `gone` where none was opened. */
export function backendOf(upload: UploadRow): string {
  if (upload.backend_id === null) throw gone();
  return upload.backend_id;
}

/** In bytes; null while deferred. */
export function lengthOf(upload: UploadRow): bigint | null {
  return upload.length === null ? null : BigInt(upload.length);
}

export function uploadMessage(upload: Upload, offset: bigint): MessageInitShape<typeof UploadSchema> {
  const length = lengthOf(upload);
  return {
    id: upload.id,
    state: states[upload.state],
    offset,
    ...(length === null ? {} : { length }),
    ...(upload.metadata === null ? {} : { metadata: upload.metadata }),
    target: {
      ...(upload.filename === null ? {} : { filename: upload.filename }),
      ...(upload.directory_id === null ? {} : { directoryId: upload.directory_id }),
      ...(upload.media_type === null ? {} : { mediaType: upload.media_type }),
      ...(upload.file_class === null ? {} : { fileClass: upload.file_class }),
      ...(upload.sha256 === null ? {} : { sha256: upload.sha256 }),
      onConflict: upload.on_conflict === null ? OnConflict.UNSPECIFIED : onConflicts[upload.on_conflict],
    },
    ...(upload.state === 'finalized' ? { fileId: upload.file_id } : {}),
    createdAt: timestampFromDate(upload.created_at),
    expiresAt: timestampFromDate(upload.expires_at),
  };
}
