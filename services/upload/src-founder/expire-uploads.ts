import { sql } from 'kysely';
import type { Kysely } from 'kysely';
import { query } from '@stowage/common/database/transaction';
import type { JobHandler } from '@stowage/common/jobs/job';
import { backgroundContext } from '@stowage/common/rpc/context';
import type { CallContext } from '@stowage/common/rpc/context';
import type { Client } from '@stowage/common/rpc/contract';
import type { BlobService } from '@stowage/proto/stowage/backend_registry/v1/blob';
import type { ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import type { Tables, UploadRow } from './tables.ts';
import { blobKey } from '@stowage/common/blob-key';

interface Needs {
  db: Kysely<Tables>;
  content: Client<typeof ContentService>;
  blobs: Client<typeof BlobService>;
}

const batch = 100;
/** An upload that ended is remembered for a day, so that its client is told "gone" rather than "never heard of it". */
const tombstoneHours = 24;

/** Frees what unfinished uploads hold once they expired, and forgets those that ended long ago. */
export function expireUploads(needs: Needs): JobHandler {
  return async (_job, { signal, progress }) => {
    const context = backgroundContext(signal);
    let expired = 0;
    for (let rows = await due(needs.db); rows.length > 0 && !signal.aborted; rows = await due(needs.db)) {
      for (const row of rows) await expire(needs, row, context);
      expired += rows.length;
      progress({ done: expired });
    }
    return { expired, forgotten: await forget(needs.db, signal) };
  };
}

/** Claims what expired, in one statement: from then on no request can bring it back. */
async function due(db: Kysely<Tables>): Promise<UploadRow[]> {
  const { rows } = await query(() =>
    sql<UploadRow>`
      update upload.uploads u set state = case when u.state = 'open' and u.sealed_key is null then 'ended' else u.state end,
        expires_at = case when u.state = 'ended' then u.expires_at else now() + interval '1 minute' end
      where id in (select id from upload.uploads where expires_at < now() and state in ('open', 'finalizing')
        order by expires_at limit ${batch} for update skip locked)
      returning u.*`.execute(db),
  );
  return rows;
}

async function expire({ db, content, blobs }: Needs, row: UploadRow, context: CallContext): Promise<void> {
  if (row.state === 'finalizing' || row.sealed_key !== null) {
    // The content may lie sealed already: catalog gives it up for good, or knows that it became a file after all.
    const replica = { backendId: row.backend_id, key: row.sealed_key ?? blobKey(row.blob_id) };
    const { file } = await content.abandonBlob({ fileId: row.file_id, blobId: row.blob_id, replica }, context);
    if (file) {
      await setState(db, row.id, 'finalized');
      return;
    }
  }
  await blobs.discardStaged({ backendId: row.backend_id, stagedId: row.id }, context);
  await setState(db, row.id, 'ended');
}

async function setState(db: Kysely<Tables>, id: string, state: 'ended' | 'finalized'): Promise<void> {
  await query(() => db.updateTable('upload.uploads').set({ state, expires_at: new Date() }).where('id', '=', id).execute());
}

/** Drops finalized uploads past their expiry, ended ones a day after. Their leases ran out long before. */
async function forget(db: Kysely<Tables>, signal: AbortSignal): Promise<number> {
  let forgotten = 0;
  for (let removed = batch; removed === batch && !signal.aborted; ) {
    const { numAffectedRows } = await query(() =>
      sql`
        delete from upload.uploads where id in (select id from upload.uploads
          where (state = 'finalized' and expires_at < now())
            or (state = 'ended' and expires_at < now() - ${tombstoneHours} * interval '1 hour') limit ${batch})`.execute(db),
    );
    removed = Number(numAffectedRows ?? 0n);
    forgotten += removed;
  }
  await query(() => sql`delete from upload.leases where expires_at < now()`.execute(db));
  return forgotten;
}
