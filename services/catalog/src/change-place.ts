import { sql } from 'kysely';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { AppError } from '@stowage/common/errors';
import { normalizeName } from '@stowage/common/names';
import type { CallContext } from '@stowage/common/rpc/context';
import type { OnConflict } from '@stowage/proto/stowage/catalog/v1/node';
import type {
  MoveNodeRequest,
  MoveNodeResponseSchema,
  RenameNodeRequest,
  RenameNodeResponseSchema,
} from '@stowage/proto/stowage/catalog/v1/tree';
import { announce, causeOf } from './file-events.ts';
import type { Verb } from './file-events.ts';
import { takeName, unlessTaken } from './free-name.ts';
import { nodeMessage } from './node-message.ts';
import { kindOf, lockNode, lockParent, noDestination, refuseRoot, requireActive, requireUsable } from './nodes.ts';
import type { Kind, KnownNode, Trx } from './nodes.ts';
import { childStanding } from './standing.ts';
import type { Standing } from './standing.ts';

/** The pointer of a request's field that names the directory of a node of this kind. */
export function parentPointer(kind: Kind): string {
  return kind === 'directory' ? '/parent_id' : '/directory_id';
}

/** Renames a node where it is: one row. Throws `not_found`, `precondition_failed`, `state_conflict`, `name_conflict`. */
export async function renameNode(
  trx: Trx,
  context: CallContext,
  request: RenameNodeRequest,
): Promise<MessageInitShape<typeof RenameNodeResponseSchema>> {
  const name = normalizeName(request.name);
  const kind = kindOf(request.kind);
  const node = await lockNode(trx, request.id, kind, request.ifMatch);
  refuseRoot(request.id);
  requireActive(node, `The ${kind}`);
  const parentId = requireParent(node);
  const parentPath = node.standing.path.slice(0, -node.row.name.length - 1) || '/';
  const parent = { ...node.standing, path: parentPath, depth: node.standing.depth - 1 };
  const changed = await settle(trx, node, { parentId, parent, name, onConflict: request.onConflict });
  if (changed !== node) await announceAt(trx, context, 'renamed', changed);
  return { node: nodeMessage(changed) };
}

/**
 * Moves a node: one row, however much lies below it. Throws `cycle` for a move of a directory under itself, and as
 * renameNode.
 */
export async function moveNode(
  trx: Trx,
  context: CallContext,
  request: MoveNodeRequest,
): Promise<MessageInitShape<typeof MoveNodeResponseSchema>> {
  const wantedName = request.name === undefined ? null : normalizeName(request.name);
  const kind = kindOf(request.kind);
  if (kind === 'directory') await serializeDirectoryMoves(trx);
  const node = await lockNode(trx, request.id, kind, request.ifMatch);
  refuseRoot(request.id);
  requireActive(node, `The ${kind}`);
  const parent = await lockParent(trx, request.parentId);
  if (!parent) throw noDestination();
  if (parent.way.includes(request.id)) {
    throw new AppError('cycle', 'A directory can not be moved into itself or what lies below it.');
  }
  requireUsable(parent, parentPointer(kind));
  const changed = await settle(trx, node, {
    parentId: request.parentId,
    parent: parent.standing,
    name: wantedName ?? node.row.name,
    onConflict: request.onConflict,
  });
  if (changed !== node) await announceAt(trx, context, 'moved', changed);
  return { node: nodeMessage(changed) };
}

/** Any number; the same in every version. */
const directoryMoves = 5_370_001;

/**
 * Lets one change of a directory's place at a time in, until the transaction ends, so that two opposite moves can not
 * both find their way up clear. Taken before any row is locked.
 */
export async function serializeDirectoryMoves(trx: Trx): Promise<void> {
  await sql`select pg_advisory_xact_lock(${directoryMoves})`.execute(trx);
}

/** Where a node is to be, and under which name. */
export interface Place {
  parentId: string;
  parent: Standing;
  name: string;
  onConflict: OnConflict;
}

/** Writes a node's place and name, out of the bin if it was there; the same object where nothing changes. */
export async function settle(trx: Trx, node: KnownNode, place: Place): Promise<KnownNode> {
  const { parentId, name, onConflict } = place;
  const stays = node.standing.entry === null && node.standing.parentId === parentId;
  return takeName(trx, { parentId, name, onConflict, nodeId: node.row.id }, async (free) => {
    if (stays && free === node.row.name) return node;
    return unlessTaken(trx, () => write(trx, node, place, free));
  });
}

async function write(trx: Trx, node: KnownNode, place: Place, name: string): Promise<KnownNode> {
  const { rows } = await sql<{ version: string; updated_at: Date }>`
    update catalog.nodes set parent_id = ${place.parentId}, name = ${name}, deleted_at = null, purge_at = null,
      version = version + 1, updated_at = now()
    where id = ${node.row.id} returning version, updated_at`.execute(trx);
  const [changed] = rows;
  if (!changed) throw new AppError('not_found', `There is no such ${node.row.kind}.`);
  return { row: { ...node.row, ...changed, name }, standing: childStanding(place.parentId, place.parent, name) };
}

export async function announceAt(
  trx: Trx,
  context: CallContext,
  verb: Verb,
  { row, standing }: KnownNode,
): Promise<void> {
  await announce(trx, causeOf(context), verb, {
    id: row.id,
    kind: row.kind,
    parent_id: standing.parentId,
    name: row.name,
  });
}

function requireParent({ standing, row }: KnownNode): string {
  if (standing.parentId === null) throw new Error(`node ${row.id} is active and has no parent`);
  return standing.parentId;
}
