import { depthMax, walkMax } from '@stowage/common/tree-limits';
import { sql } from 'kysely';
import type { QueryExecutorProvider, RawBuilder, Transaction } from 'kysely';
import { AppError, validationError } from '@stowage/common/errors';
import { isId, rootDirectoryId } from '@stowage/common/ids';
import { NodeKind } from '@stowage/proto/stowage/catalog/v1/node';
import type { VersionCondition } from '@stowage/proto/stowage/catalog/v1/node';
import { standingOf } from './standing.ts';
import type { Standing, WayStep } from './standing.ts';

export type Trx = Transaction<unknown>;
export type Kind = 'directory' | 'file';

/** A row of catalog.nodes, with its blob's hash. */
export interface NodeRow {
  id: string;
  kind: Kind;
  name: string;
  version: string;
  created_at: Date;
  updated_at: Date;
  blob_id: string | null;
  size: string | null;
  media_type: string | null;
  file_class: string | null;
  sha256: Buffer | null;
}

/** A node that exists: active or in the bin. */
export interface KnownNode {
  row: NodeRow;
  standing: Standing;
}

/** A node that exists, with the ids on its way up, its own first. */
export interface LoadedNode extends KnownNode {
  way: readonly string[];
}

/** The columns of NodeRow, from `catalog.nodes n`. */
export const nodeColumns = sql`
  n.id, n.kind, n.name, n.version, n.created_at, n.updated_at, n.blob_id, n.size, n.media_type, n.file_class`;

const stepColumns = sql`n.id, n.parent_id, n.name, n.deleted_at, n.purge_at, n.purged_at`;

/**
 * `catalog.nodes n` by id, for each row before it on its own. Of a plain join PostgreSQL may make one that reads the whole
 * table, and keep that plan from when the table was small.
 */
const nodeById = (id: RawBuilder<unknown>): RawBuilder<unknown> => sql`
      cross join lateral (select n.* from catalog.nodes n where n.id = ${id} offset 0) n`;

/** The steps of the ways from the nodes that `seed` names up to the root, for the `up` of a recursive query. */
export const wayUp = sql`
      select n.id as start, ${stepColumns}, 1 as steps from seed ${nodeById(sql`seed.id`)}
      union all
      select up.start, ${stepColumns}, up.steps + 1 from up ${nodeById(sql`up.parent_id`)}
      where up.purged_at is null and up.steps < ${sql.lit(walkMax)}`;

/**
 * Reads the nodes whose ids `seed` selects, with all that decides where they stand, in one statement; `more` adds
 * columns to each row, as `, expression as name` of `catalog.nodes n`.
 */
export async function loadNodes<More extends object = object>(
  db: QueryExecutorProvider,
  seed: RawBuilder<unknown>,
  more: RawBuilder<More> = sql``,
): Promise<(LoadedNode & { row: NodeRow & More })[]> {
  const { rows } = await sql<NodeRow & More & { way: WayStep[] }>`
    with recursive seed as materialized (${seed}), up as (${wayUp}), ways as (
      select start, json_agg(json_build_object('id', id, 'parent_id', parent_id, 'name', name, 'deleted_at', deleted_at,
        'purge_at', purge_at, 'purged', purged_at is not null) order by steps) as way
      from up group by start
    )
    select ${nodeColumns}, (select sha256 from catalog.blobs b where b.id = n.blob_id), ways.way${more}
    from ways ${nodeById(sql`ways.start`)}`.execute(db);
  return rows.flatMap((row) => {
    const standing = standingOf(row.way);
    return standing ? [{ row, standing, way: row.way.map((step) => step.id) }] : [];
  });
}

/** Reads one node; null where it does not exist (any more) under that kind. */
export async function findNode<More extends object = object>(
  db: QueryExecutorProvider,
  id: string,
  kind: Kind,
  more?: RawBuilder<More>,
): Promise<(KnownNode & { row: NodeRow & More }) | null> {
  if (!isId(id)) return null;
  const [node] = await loadNodes(db, sql`select ${id}::uuid as id`, more);
  return node?.row.kind === kind ? node : null;
}

/** As findNode, but throws `not_found`. */
export async function requireNode<More extends object = object>(
  db: QueryExecutorProvider,
  id: string,
  kind: Kind,
  more?: RawBuilder<More>,
): Promise<KnownNode & { row: NodeRow & More }> {
  const node = await findNode(db, id, kind, more);
  if (!node) throw new AppError('not_found', `There is no such ${kind}.`);
  return node;
}

/**
 * Locks a node against other changes and reads it. Throws `not_found`, and `precondition_failed` where `ifMatch` does
 * not accept its version. Children can still be made meanwhile: the lock leaves the key alone.
 */
export async function lockNode(
  trx: Trx,
  id: string,
  kind: Kind,
  ifMatch: VersionCondition | undefined,
): Promise<KnownNode> {
  // A statement of its own, so that the next one sees what the lock had to wait for.
  if (isId(id)) await sql`select from catalog.nodes where id = ${id} for no key update`.execute(trx);
  const node = await requireNode(trx, id, kind);
  const version = BigInt(node.row.version);
  if (ifMatch && !ifMatch.versions.includes(version)) {
    throw new AppError('precondition_failed', `The ${kind} is at version ${version} by now: read it again.`, {
      members: { version: Number(version) },
    });
  }
  return node;
}

/** Reads a directory that is to get a child and keeps it from being deleted; null where there is no such directory. */
export async function lockParent(trx: Trx, id: string): Promise<LoadedNode | null> {
  if (!isId(id)) return null;
  const [parent] = await loadNodes(trx, sql`select id from catalog.nodes where id = ${id} for key share`);
  return parent?.row.kind === 'directory' ? parent : null;
}

/** As lockParent, but throws `not_found`, and what requireUsable throws. */
export async function lockDestination(trx: Trx, id: string, pointer: string): Promise<KnownNode> {
  const parent = await lockParent(trx, id);
  if (!parent) throw noDestination();
  requireUsable(parent, pointer);
  return parent;
}

export function noDestination(): AppError {
  return new AppError('not_found', 'There is no such directory to put it in.');
}

/** Throws `state_conflict` for a directory in the bin, `validation_failed` for one whose children would lie too deep. */
export function requireUsable(parent: KnownNode, pointer: string): void {
  requireActive(parent, 'The directory to put it in');
  if (parent.standing.depth < depthMax) return;
  throw validationError([{ pointer, detail: `lies so deep that its children would be more than ${depthMax} deep` }]);
}

/** Throws `state_conflict` where the node, or a directory above it, is in the bin; says what to restore. */
export function requireActive(node: KnownNode, subject: string): void {
  const { entry } = node.standing;
  if (!entry) return;
  const detail =
    entry.id === node.row.id
      ? `${subject} is in the recycle bin: restore it first.`
      : `${subject} lies in the recycled directory "${entry.name}": restore that directory (${entry.id}) first.`;
  throw new AppError('state_conflict', detail);
}

/** Throws `state_conflict` for the root. */
export function refuseRoot(id: string): void {
  if (id !== rootDirectoryId) return;
  throw new AppError('state_conflict', 'The root directory can not be renamed, moved or deleted.');
}

/** The kind as rows name it. Throws `not_found` for a kind that is none. */
export function kindOf(kind: NodeKind): Kind {
  if (kind === NodeKind.DIRECTORY) return 'directory';
  if (kind === NodeKind.FILE) return 'file';
  throw new AppError('not_found', 'There is no such node.');
}
