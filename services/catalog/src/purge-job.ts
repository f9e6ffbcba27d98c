import { sql } from 'kysely';
import type { Kysely } from 'kysely';
import { inTransaction } from '@stowage/common/database/transaction';
import type { JobHandler } from '@stowage/common/jobs/job';
import { releaseBlobs, requeueRemovals } from './blobs.ts';
import type { Kind, Trx } from './nodes.ts';
import { emptyingOf, markEmptied, markExpired, serializePurges } from './purge.ts';
import type { Keeping } from './settings.ts';

/** Together the most rows that one transaction changes. */
const filesPerBatch = 1_000;
const directoriesPerBatch = 250;
const childrenPerBatch = 750;

/**
 * The job purge_recycle_bin: marks the entries whose time is over, then deletes all that is marked, in small
 * transactions; content whose removal failed is given to it again. Stops between two of them; the next run goes on from there.
 */
export function purgeRecycleBin(db: Kysely<unknown>, keeping: Keeping): JobHandler {
  return async (job, { signal, progress }) => {
    const emptying = emptyingOf(job.params);
    const emptied = emptying ? await markEmptied(db, emptying, signal) : 0;
    const entries = emptied + (await markExpired(db, signal));
    await inTransaction(db, requeueRemovals);
    let nodes = 0;
    for (;;) {
      signal.throwIfAborted();
      const batch = await inTransaction(db, (trx) => deleteBatch(trx, keeping.graceMs));
      if (!batch.found) return { entries, nodes };
      nodes += batch.deleted;
      progress({ done: nodes });
    }
  };
}

interface Batch {
  /** False where nothing was left to do. */
  found: boolean;
  deleted: number;
}

async function deleteBatch(trx: Trx, graceMs: number): Promise<Batch> {
  await serializePurges(trx);
  const { rows: files } = await sql<{ id: string }>`
    select id from catalog.nodes where purged_at is not null and kind = 'file'
    order by purged_at, id limit ${filesPerBatch} for update`.execute(trx);
  if (files.length === 0) return deleteDirectories(trx, graceMs);
  const deleted = await deleteFiles(trx, idsOf(files), graceMs);
  return { found: true, deleted };
}

interface Child {
  id: string;
  kind: Kind;
  is_entry: boolean;
}

/** Takes the children out of some purged directories and deletes those that are empty by then. */
async function deleteDirectories(trx: Trx, graceMs: number): Promise<Batch> {
  // The lock holds off new children until the end, so that "empty" stays true.
  const { rows: directories } = await sql<{ id: string }>`
    select id from catalog.nodes where purged_at is not null and kind = 'directory'
    order by purged_at, id limit ${directoriesPerBatch} for update`.execute(trx);
  if (directories.length === 0) return { found: false, deleted: 0 };
  const { rows: children } = await sql<Child>`
    select id, kind, deleted_at is not null and purged_at is null as is_entry from catalog.nodes
    where parent_id = any(${idsOf(directories)}::uuid[])
    limit ${childrenPerBatch} for update`.execute(trx);
  await keepEntries(trx, idsOf(children.filter((child) => child.is_entry)));
  const purged = children.filter((child) => !child.is_entry);
  const files = await deleteFiles(trx, idsOf(purged.filter((child) => child.kind === 'file')), graceMs);
  await detachDirectories(trx, idsOf(purged.filter((child) => child.kind === 'directory')));
  const { numAffectedRows = 0n } = await sql`
    delete from catalog.nodes n where id = any(${idsOf(directories)}::uuid[])
      and not exists (select from catalog.nodes child where child.parent_id = n.id)`.execute(trx);
  return { found: true, deleted: files + Number(numAffectedRows) };
}

/** What was recycled for itself keeps its entry in the bin; its old place is gone. */
async function keepEntries(trx: Trx, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  await sql`update catalog.nodes set parent_id = null where id = any(${ids}::uuid[])`.execute(trx);
}

/** Makes directories below a purged one purged themselves, so that the upper need not wait for the lower. */
async function detachDirectories(trx: Trx, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  await sql`
    update catalog.nodes set parent_id = null, purged_at = coalesce(purged_at, now())
    where id = any(${ids}::uuid[])`.execute(trx);
}

async function deleteFiles(trx: Trx, ids: readonly string[], graceMs: number): Promise<number> {
  if (ids.length === 0) return 0;
  const { rows } = await sql<{ blob_id: string }>`
    delete from catalog.nodes where id = any(${ids}::uuid[]) returning blob_id`.execute(trx);
  const blobIds = rows.map((row) => row.blob_id);
  await releaseBlobs(trx, blobIds, graceMs);
  return rows.length;
}

function idsOf(rows: readonly { id: string }[]): string[] {
  return rows.map((row) => row.id);
}
