import { query } from '@stowage/common/database/transaction';
import { AppError } from '@stowage/common/errors';
import type { CallContext } from '@stowage/common/rpc/context';
import type { Client } from '@stowage/common/rpc/contract';
import type { Logger } from '@stowage/common/runtime/logger';
import type { BlobService } from '@stowage/proto/stowage/backend_registry/v1/blob';
import type { Kysely } from 'kysely';
import type { Tables } from './tables.ts';
import { findUpload } from './uploads.ts';

/**
 * Ends an unfinished upload: in the database first, then its staged content goes, with whoever writes to it. Content that
 * can't be removed just now is removed by expiry.
 */
export async function terminateUpload(
  { db, blobs, logger }: { db: Kysely<Tables>; blobs: Client<typeof BlobService>; logger: Logger },
  id: string,
  context: CallContext,
): Promise<void> {
  const row = await findUpload(db, id, context);
  const ended = await query(() =>
    db
      .updateTable('upload.uploads')
      .set({ state: 'ended', expires_at: new Date() })
      .where('id', '=', id)
      .where('state', '=', 'open')
      .where('sealed_key', 'is', null)
      .returning('id')
      .executeTakeFirst(),
  );
  if (!ended) throw new AppError('state_conflict', 'This upload is being made a file, or is one already.');
  try {
    await blobs.discardStaged({ backendId: row.backend_id, stagedId: id }, context);
  } catch (error) {
    logger.warn({ err: error, upload_id: id }, 'Staged content could not be removed yet.');
  }
}
