import { sql } from 'kysely';
import type { QueryExecutorProvider } from 'kysely';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { decodeCursor, encodeCursor } from '@stowage/common/cursor';
import { AppError } from '@stowage/common/errors';
import { isId } from '@stowage/common/ids';
import { normalizeName } from '@stowage/common/names';
import type { CallContext } from '@stowage/common/rpc/context';
import type {
  ListRecycleBinRequest,
  ListRecycleBinResponseSchema,
  RecycleNodeRequest,
  RecycleNodeResponseSchema,
  RestoreNodeRequest,
  RestoreNodeResponseSchema,
} from '@stowage/proto/stowage/catalog/v1/tree';
import { announceAt, parentPointer, serializeDirectoryMoves, settle } from './change-place.ts';
import { nodeMessage } from './node-message.ts';
import {
  kindOf,
  loadNodes,
  lockNode,
  lockParent,
  noDestination,
  refuseRoot,
  requireActive,
  requireUsable,
} from './nodes.ts';
import type { KnownNode, Trx } from './nodes.ts';
import { cursorFault, requireLimit, timeOf } from './paging.ts';
import type { Keeping } from './settings.ts';

/**
 * Puts a node with all below it into the bin, as one entry; an entry is answered as it is. Throws `not_found`,
 * `precondition_failed`, `state_conflict`.
 */
export async function recycleNode(
  trx: Trx,
  keeping: Keeping,
  context: CallContext,
  request: RecycleNodeRequest,
): Promise<MessageInitShape<typeof RecycleNodeResponseSchema>> {
  const kind = kindOf(request.kind);
  const node = await lockNode(trx, request.id, kind, request.ifMatch);
  refuseRoot(request.id);
  if (isEntry(node)) return { node: nodeMessage(node) };
  requireActive(node, `The ${kind}`);
  const { rows } = await sql<{ version: string; updated_at: Date; deleted_at: Date; purge_at: Date }>`
    update catalog.nodes set deleted_at = now(), purge_at = now() + ${keeping.retentionMs} * interval '1 ms',
      version = version + 1, updated_at = now()
    where id = ${request.id} returning version, updated_at, deleted_at, purge_at`.execute(trx);
  const [changed] = rows;
  if (!changed) throw new AppError('not_found', `There is no such ${kind}.`);
  const { deleted_at: deletedAt, purge_at: purgeAt, ...columns } = changed;
  const entry = { id: node.row.id, name: node.row.name, deletedAt, purgeAt };
  const recycled = { row: { ...node.row, ...columns }, standing: { ...node.standing, entry } };
  await announceAt(trx, context, 'recycled', recycled);
  return { node: nodeMessage(recycled) };
}

/**
 * Brings an entry of the bin back, with all that lies below it and was not recycled for itself. Throws
 * `parent_missing` where its directory is gone or in the bin, and as moveNode.
 */
export async function restoreNode(
  trx: Trx,
  context: CallContext,
  request: RestoreNodeRequest,
): Promise<MessageInitShape<typeof RestoreNodeResponseSchema>> {
  const wantedName = request.name === undefined ? null : normalizeName(request.name);
  const kind = kindOf(request.kind);
  if (kind === 'directory') await serializeDirectoryMoves(trx);
  const node = await lockNode(trx, request.id, kind, request.ifMatch);
  requireEntry(node);
  const parentId = request.parentId ?? node.standing.parentId;
  const parent = parentId === null ? null : await lockParent(trx, parentId);
  if (!parent && request.parentId !== undefined) throw noDestination();
  if (!parent || parent.standing.entry) throw parentMissing();
  requireUsable(parent, parentPointer(kind));
  const restored = await settle(trx, node, {
    parentId: parent.row.id,
    parent: parent.standing,
    name: wantedName ?? node.row.name,
    onConflict: request.onConflict,
  });
  await announceAt(trx, context, 'restored', restored);
  return { node: nodeMessage(restored) };
}

function parentMissing(): AppError {
  return new AppError(
    'parent_missing',
    'The directory is gone or in the recycle bin: name another one to restore it to.',
  );
}

/** Whether the node is an entry of the bin itself, not only below one. */
export function isEntry(node: KnownNode): boolean {
  return node.standing.entry?.id === node.row.id;
}

/** Throws `state_conflict` for a node that is no entry of the bin. */
export function requireEntry(node: KnownNode): void {
  if (isEntry(node)) return;
  requireActive(node, `The ${node.row.kind}`);
  throw new AppError('state_conflict', `The ${node.row.kind} is not in the recycle bin.`);
}

/** Reads one page of the bin, newest deletion first. Throws `validation_failed` for a cursor that is none. */
export async function listRecycleBin(
  db: QueryExecutorProvider,
  request: ListRecycleBinRequest,
): Promise<MessageInitShape<typeof ListRecycleBinResponseSchema>> {
  const limit = requireLimit(request.limit);
  const after = cursorOf(request.cursor);
  const entries = await loadNodes(
    db,
    sql`select id from catalog.nodes where deleted_at is not null and purged_at is null
      ${after ? sql`and (deleted_at, id) < (${after.deletedAt}, ${after.id})` : sql``}
      order by deleted_at desc, id desc limit ${limit + 1}`,
  );
  entries.sort((a, b) => deletedMs(b) - deletedMs(a) || (a.row.id < b.row.id ? 1 : -1));
  const page = entries.slice(0, limit);
  const last = page.at(-1);
  const nextCursor =
    last && entries.length > limit ? encodeCursor([new Date(deletedMs(last)).toISOString(), last.row.id]) : null;
  return { items: page.map(nodeMessage), ...(nextCursor === null ? {} : { nextCursor }) };
}

function deletedMs(node: KnownNode): number {
  return node.standing.entry?.deletedAt.getTime() ?? 0;
}

function cursorOf(text: string): { deletedAt: Date; id: string } | null {
  const values = decodeCursor(text, 2);
  if (!values) return null;
  const [time = '', id = ''] = values;
  const deletedAt = timeOf(time);
  if (!deletedAt || !isId(id)) throw cursorFault();
  return { deletedAt, id };
}
