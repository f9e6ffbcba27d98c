import type { Kysely } from 'kysely';
import { query } from '@stowage/common/database/transaction';
import { AppError } from '@stowage/common/errors';
import type { BlobStore } from './stores/blob-store.ts';
import { MarkerFault } from './stores/open-store.ts';
import type { BackendRow, Tables } from './tables.ts';

/**
 * Throws MarkerFault unless the store bears the marker of this backend, which is written only until it was read back
 * once: a marker that is missing afterwards means that the disk is.
 */
export async function checkMarker(db: Kysely<Tables>, store: BlobStore, row: BackendRow): Promise<void> {
  let identity = await store.identity();
  if (identity === null && !row.marked) {
    await claim(store, row.id);
    identity = await store.identity();
  }
  if (identity !== row.id) throw wrongMarker(identity);
  if (row.marked) return;
  await query(() =>
    db
      .updateTable('registry.backends')
      .set({ marked: true })
      .where('id', '=', row.id)
      .where('version', '=', row.version)
      .execute(),
  );
}

async function claim(store: BlobStore, backendId: string): Promise<void> {
  await store.claim(backendId).catch((error: unknown) => {
    if (!(error instanceof AppError) || error.code !== 'state_conflict') throw error;
    throw new MarkerFault(error.detail, error);
  });
}

function wrongMarker(identity: string | null): MarkerFault {
  return new MarkerFault(
    identity === null
      ? 'The place of this backend has no identity marker: is its disk mounted?'
      : 'The place of this backend bears the marker of another backend.',
  );
}
