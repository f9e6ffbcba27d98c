import { AppError } from '@stowage/common/errors';
import { rootDirectoryId } from '@stowage/common/ids';
import { walkMax } from '@stowage/common/tree-limits';

/** One node on the way from a node up to the root, that node itself first. */
export interface WayStep {
  id: string;
  parent_id: string | null;
  name: string;
  deleted_at: string | null;
  purge_at: string | null;
  purged: boolean;
}

/** The entry of the recycle bin that a node is in, or is. */
export interface BinEntry {
  id: string;
  name: string;
  deletedAt: Date;
  purgeAt: Date;
}

/** Where a node stands: all that depends on what lies above it. */
export interface Standing {
  /** For people; `/` is the root. */
  path: string;
  /** Null for the root, and where the parent is gone. */
  parentId: string | null;
  /** How many directories lie above it. */
  depth: number;
  /** Null while it is active. */
  entry: BinEntry | null;
}

/**
 * Judges a node by the way above it, which ends at the root, at a purged node, or at an entry whose parent is gone.
 * The nearest node that is marked decides: purged, and the node is gone (null); deleted, and it is recycled.
 */
export function standingOf(way: readonly WayStep[]): Standing | null {
  const existing = existingPart(way);
  const [, parent] = existing;
  if (existing.length === 0) return null;
  const marked = existing.find((step) => step.deleted_at !== null);
  const last = existing.at(-1);
  if (!marked && last?.parent_id) {
    throw new AppError(
      'state_conflict',
      `It lies more than ${walkMax} directories deep: move one above it further up.`,
    );
  }
  const names = existing.filter((step) => step.id !== rootDirectoryId).map((step) => step.name);
  return {
    path: `/${names.reverse().join('/')}`,
    parentId: parent?.id ?? null,
    depth: existing.length - 1,
    entry: marked ? entryOf(marked) : null,
  };
}

/** What lies directly below a purged node is gone with it, up to the highest entry that the bin kept for itself. */
function existingPart(way: readonly WayStep[]): readonly WayStep[] {
  const purged = way.findIndex((step) => step.purged);
  if (purged === -1) return way;
  const below = way.slice(0, purged);
  return below.slice(0, below.findLastIndex((step) => step.deleted_at !== null) + 1);
}

function entryOf(step: WayStep): BinEntry {
  return {
    id: step.id,
    name: step.name,
    deletedAt: new Date(step.deleted_at ?? 0),
    purgeAt: new Date(step.purge_at ?? 0),
  };
}

/** Where a child of that name stands below a directory. */
export function childStanding(parentId: string, parent: Standing, name: string): Standing {
  const path = parent.path === '/' ? `/${name}` : `${parent.path}/${name}`;
  return { path, parentId, depth: parent.depth + 1, entry: parent.entry };
}
