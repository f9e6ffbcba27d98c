import { sql } from 'kysely';
import type { Kysely, RawBuilder } from 'kysely';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { inTransaction } from '@stowage/common/database/transaction';
import { enqueueJob } from '@stowage/common/jobs/enqueue';
import { idempotent } from '@stowage/common/jobs/idempotency';
import type { JsonObject } from '@stowage/common/jobs/job';
import type { CallContext } from '@stowage/common/rpc/context';
import { EmptyRecycleBinResponseSchema } from '@stowage/proto/stowage/catalog/v1/tree';
import type { PurgeNodeRequest } from '@stowage/proto/stowage/catalog/v1/tree';
import { releaseBlobs } from './blobs.ts';
import { announce, announceAll, causeOf } from './file-events.ts';
import type { Cause, EventNode } from './file-events.ts';
import { kindOf, lockNode } from './nodes.ts';
import type { Trx } from './nodes.ts';
import { requireEntry } from './recycle-bin.ts';
import type { Keeping } from './settings.ts';

/**
 * Removes an entry of the bin for good: a file at once, its content after the grace time; of a directory nothing can be
 * read any more, and a job deletes the rows. Throws `not_found`, `precondition_failed`, and `state_conflict` for a node
 * that is no entry.
 */
export async function purgeNode(
  trx: Trx,
  keeping: Keeping,
  context: CallContext,
  request: PurgeNodeRequest,
): Promise<Record<string, never>> {
  const kind = kindOf(request.kind);
  const node = await lockNode(trx, request.id, kind, request.ifMatch);
  requireEntry(node);
  const { id, name, blob_id: blobId } = node.row;
  if (kind === 'file') {
    await sql`delete from catalog.nodes where id = ${id}`.execute(trx);
    if (blobId !== null) await releaseBlobs(trx, [blobId], keeping.graceMs);
  } else {
    await sql`update catalog.nodes set purged_at = now() where id = ${id}`.execute(trx);
    await enqueueJob(trx, { kind: 'purge_recycle_bin', dedupeKey: 'now' });
  }
  await announce(trx, causeOf(context), 'purged', { id, kind, parent_id: node.standing.parentId, name });
  return {};
}

/**
 * Removes for good all that is in the bin now; what is recycled meanwhile stays. The count, and a job that finishes the
 * work after a crash, are kept first, so that the same request again empties nothing more.
 */
export async function emptyRecycleBin(
  db: Kysely<unknown>,
  context: CallContext,
): Promise<MessageInitShape<typeof EmptyRecycleBinResponseSchema>> {
  const emptying: Emptying[] = [];
  const response = await inTransaction(db, async (trx) => {
    emptying.length = 0;
    return idempotent(trx, context, EmptyRecycleBinResponseSchema, async () => {
      const { entries, before } = await countEntries(trx);
      if (entries === 0n) return { entries };
      emptying.push({ before, cause: causeOf(context) });
      await enqueueJob(trx, { kind: 'purge_recycle_bin', params: paramsOf({ before, cause: causeOf(context) }) });
      return { entries };
    });
  });
  for (const one of emptying) await markEmptied(db, one, context.signal);
  return response;
}

async function countEntries(trx: Trx): Promise<{ entries: bigint; before: Date }> {
  const { rows } = await sql<{ entries: string; before: Date }>`
    select count(*) as entries, now()::timestamptz(3) as before from catalog.nodes
    where deleted_at is not null and purged_at is null`.execute(trx);
  const [row] = rows;
  return row ? { entries: BigInt(row.entries), before: row.before } : { entries: 0n, before: new Date(0) };
}

/** The bin emptied at a moment, by somebody. */
export interface Emptying {
  before: Date;
  cause: Cause;
}

function paramsOf({ before, cause }: Emptying): JsonObject {
  return { empty_before: before.toISOString(), actor: cause.actor, request_id: cause.requestId };
}

/** Reads back what an emptying left in its job; null for a job that has no such order. */
export function emptyingOf(params: JsonObject): Emptying | null {
  const { empty_before: before, actor, request_id: requestId } = params;
  if (typeof before !== 'string') return null;
  const text = (value: unknown): string | null => (typeof value === 'string' ? value : null);
  return { before: new Date(before), cause: { actor: text(actor), requestId: text(requestId) } };
}

/** Marks all that was in the bin at that moment. Gives how many entries that were. */
export async function markEmptied(db: Kysely<unknown>, emptying: Emptying, signal: AbortSignal): Promise<number> {
  return markAll(db, sql`deleted_at <= ${emptying.before}`, emptying.cause, signal);
}

/** Marks the entries whose time in the bin is over. Gives how many that were. */
export async function markExpired(db: Kysely<unknown>, signal: AbortSignal): Promise<number> {
  return markAll(db, sql`purge_at <= now()`, { actor: null, requestId: null }, signal);
}

const entriesPerBatch = 5_000;

async function markAll(
  db: Kysely<unknown>,
  due: RawBuilder<unknown>,
  cause: Cause,
  signal: AbortSignal,
): Promise<number> {
  let entries = 0;
  for (;;) {
    signal.throwIfAborted();
    const marked = await inTransaction(db, (trx) => markBatch(trx, due, cause));
    if (marked === 0) return entries;
    entries += marked;
  }
}

async function markBatch(trx: Trx, due: RawBuilder<unknown>, cause: Cause): Promise<number> {
  await serializePurges(trx);
  const { rows } = await sql<EventNode>`
    with due as (
      select id from catalog.nodes where deleted_at is not null and purged_at is null and ${due}
      limit ${entriesPerBatch} for no key update
    )
    update catalog.nodes n set purged_at = now() from due where n.id = due.id
    returning n.id, n.kind, n.parent_id, n.name`.execute(trx);
  await announceAll(trx, cause, 'purged', rows);
  return rows.length;
}

/** Any number; the same in every version. */
const purges = 5_370_002;

/** Lets one batch at a time in, until the transaction ends, so that two purges share the work without deadlocks. */
export async function serializePurges(trx: Trx): Promise<void> {
  await sql`select pg_advisory_xact_lock(${purges})`.execute(trx);
}
