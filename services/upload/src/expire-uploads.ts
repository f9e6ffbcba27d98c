import { blobKey } from '@stowage/common/blob-key';
import { query } from '@stowage/common/database/transaction';
import { AppError } from '@stowage/common/errors';
import type { JobHandler } from '@stowage/common/jobs/job';
import { backgroundContext } from '@stowage/common/rpc/context';
import type { CallContext } from '@stowage/common/rpc/context';
import { sql } from 'kysely';
import type { RawBuilder } from 'kysely';
import { freeContent, tombstoneHours } from './free-content.ts';
import type { UploadParts } from './parts.ts';
import { uploadEvents } from './upload-metrics.ts';
import { isBeingWritten } from './uploads.ts';

const batch = 500;
/** A lease that ran out stays a while, so that its holder finds it taken over rather than gone. */
const leaseGraceSeconds = 60;

interface EndingRow {
  id: string;
  state: 'abandoned' | 'ended';
  file_id: string;
  blob_id: string;
  backend_id: string | null;
  sealed_key: string | null;
}

/** Ends uploads that nobody went on with, frees what they staged, and forgets those that were over long ago. */
export function expireUploads(parts: UploadParts): JobHandler {
  return async (job, { signal, progress }) => {
    const expired = await inBatches(signal, () => change(parts, endExpired()));
    uploadEvents.add(expired, { event: 'expired' });
    const freeing = await freeEnded(parts, backgroundContext(signal, job.id), progress);
    const finalized = await inBatches(signal, () => change(parts, removeOld('finalized')));
    const ended = await inBatches(signal, () => change(parts, removeOld('ended')));
    const leases = await inBatches(signal, () => change(parts, removeLeases()));
    return { expired, ...freeing, removed: finalized + ended, leases };
  };
}

/** Runs `step`, which gives how many rows it changed, until it finds less than a batch. Gives the sum. */
async function inBatches(signal: AbortSignal, step: () => Promise<number>): Promise<number> {
  let sum = 0;
  for (let changed = batch; changed === batch;) {
    signal.throwIfAborted();
    changed = await step();
    sum += changed;
  }
  return sum;
}

async function change({ db }: UploadParts, statement: RawBuilder<unknown>): Promise<number> {
  const { numAffectedRows } = await query(() => statement.execute(db));
  return Number(numAffectedRows ?? 0n);
}

/** The decision, taken in the database alone: a finalize that comes later finds the upload ended. */
function endExpired(): RawBuilder<unknown> {
  return sql`
    update upload.uploads set state = case state when 'open' then 'ended' else 'abandoned' end,
      expires_at = now() + ${tombstoneHours} * interval '1 hour'
    where id in (select u.id from upload.uploads u where u.state in ('open', 'finalizing') and u.expires_at <= now()
      and not ${isBeingWritten} order by u.expires_at limit ${batch} for update skip locked)`;
}

function removeOld(state: 'finalized' | 'ended'): RawBuilder<unknown> {
  return sql`
    delete from upload.uploads where id in (select id from upload.uploads where state = ${state} and expires_at <= now()
      and (state = 'finalized' or discarded_at is not null) limit ${batch} for update skip locked)`;
}

function removeLeases(): RawBuilder<unknown> {
  return sql`
    delete from upload.leases where upload_id in (select upload_id from upload.leases
      where expires_at <= now() - ${leaseGraceSeconds} * interval '1 second' limit ${batch} for update skip locked)`;
}

/** Goes once through all that has ended and is not freed. One that can't be freed now waits for the next run. */
async function freeEnded(
  parts: UploadParts,
  context: CallContext,
  progress: (change: { done: number }) => void,
): Promise<{ freed: number; finalized: number; failures: number }> {
  const counts = { freed: 0, finalized: 0, failures: 0 };
  const sick = new Set<string>();
  let page = await readEnding(parts, null);
  while (page.length > 0) {
    for (const row of page) {
      context.signal.throwIfAborted();
      counts[await freeOne(parts, row, sick, context)] += 1;
      progress({ done: counts.freed + counts.finalized });
    }
    page = await readEnding(parts, page.at(-1)?.id ?? null);
  }
  return counts;
}

async function readEnding({ db }: UploadParts, after: string | null): Promise<EndingRow[]> {
  const { rows } = await query(() =>
    sql<EndingRow>`
      select id, state, file_id, blob_id, backend_id, sealed_key from upload.uploads
      where (state = 'abandoned' or (state = 'ended' and discarded_at is null))
        and ${after === null ? sql`true` : sql`id > ${after}`}
      order by id limit ${batch}`.execute(db),
  );
  return rows;
}

async function freeOne(
  parts: UploadParts,
  row: EndingRow,
  sick: Set<string>,
  context: CallContext,
): Promise<'freed' | 'finalized' | 'failures'> {
  const where = row.backend_id ?? 'unknown';
  // One that did not answer is not asked again for every upload that it holds.
  if (sick.has(where)) return 'failures';
  try {
    if (row.state === 'abandoned' && (await becameFile(parts, row, context))) return 'finalized';
    await freeContent(parts, row, context);
    return 'freed';
  } catch (error) {
    context.signal.throwIfAborted();
    if (!(error instanceof AppError)) throw error;
    if (error.code === 'unavailable') sick.add(where);
    parts.logger.warn({ err: error, upload_id: row.id }, 'An ended upload could not be freed yet.');
    return 'failures';
  }
}

/** Gives up the blob of an upload that expired while finalizing, unless catalog made the file after all. */
async function becameFile(parts: UploadParts, row: EndingRow, context: CallContext): Promise<boolean> {
  const { id, file_id: fileId, blob_id: blobId, backend_id: backendId, sealed_key: sealedKey } = row;
  const replica = backendId === null ? {} : { replica: { backendId, key: sealedKey ?? blobKey(blobId) } };
  const { file } = await parts.content.abandonBlob({ fileId, blobId, ...replica }, context);
  const next = file
    ? sql`state = 'finalized', backend_id = null, sealed_chunk_crc32c = null, sealed_head = null`
    : sql`state = 'ended'`;
  await change(parts, sql`update upload.uploads set ${next} where id = ${id} and state = 'abandoned'`);
  return file !== undefined;
}
