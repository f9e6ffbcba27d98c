/** What the removal of unknown objects from one backend goes by, once all that it lists was compared. */
export interface RemovalFacts {
  /** All that the backend lists. */
  listed: number;
  /** Unknown, old enough, and seen before: what would go in this run. */
  removable: number;
  /** What went already, in this run. */
  removed: number;
  /** Removals are held, as after an import. */
  held: boolean;
  /** An admin said to remove them: overrides the hold, and the limit of the share. */
  adminsWord: boolean;
}

/** Why unknown objects stay that might go. */
export type Kept = 'removals_held' | 'too_many';

/** Of more than this share of all objects an admin has to say that they may go. */
const shareMax = 0.1;

/** Why nothing may go now; null where what is removable may. */
export function whyKept({ listed, removable, removed, held, adminsWord }: RemovalFacts): Kept | null {
  if (adminsWord || removable === 0) return null;
  if (held) return 'removals_held';
  return removable + removed > listed * shareMax ? 'too_many' : null;
}
