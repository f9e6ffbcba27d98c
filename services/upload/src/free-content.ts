import { query } from '@stowage/common/database/transaction';
import type { CallContext } from '@stowage/common/rpc/context';
import { sql } from 'kysely';
import type { Db, UploadParts } from './parts.ts';

/** How long an ended upload is still known, and answered with `gone`. */
export const tombstoneHours = 24;

/** Ends an open upload; its content is still to be freed. False where it is not open. */
export async function endUpload(db: Db, id: string): Promise<boolean> {
  const { numAffectedRows } = await query(() =>
    sql`
      update upload.uploads set state = 'ended', expires_at = now() + ${tombstoneHours} * interval '1 hour'
      where id = ${id} and state = 'open'`.execute(db),
  );
  return numAffectedRows === 1n;
}

/** Stops the writer of an ended upload and removes its staged content. May be repeated. Throws `unavailable`. */
export async function freeContent(
  parts: UploadParts,
  upload: { id: string; backend_id: string | null },
  context: CallContext,
): Promise<void> {
  const { id: stagedId, backend_id: backendId } = upload;
  if (backendId !== null) await parts.blobs.discardStaged({ backendId, stagedId }, context);
  await query(() =>
    sql`
      update upload.uploads set backend_id = null, discarded_at = now() where id = ${upload.id} and state = 'ended'`.execute(
      parts.db,
    ),
  );
}
