import { unavailable } from '@stowage/common/errors';

/** A replica on the backend that is compared, as the metadata has it. */
export interface KnownReplica {
  blobId: string;
  /** Of the blob, in bytes. */
  size: number;
  /** Its bytes are believed to be there. */
  readable: boolean;
}

/** A blob that the backend lists. */
export interface StoredBlob {
  blobId: string;
  /** In bytes. */
  size: number;
  modifiedAt: Date;
}

/** Both sides, each in the order of keys. */
export interface Sides {
  /** Replicas after that of a blob ('' for the first): a whole page, or a shorter one at the end. */
  known(after: string): Promise<{ items: KnownReplica[]; more: boolean }>;
  /** The page of a listing at a cursor ('' for the first); `next` is null on the last one. */
  stored(cursor: string): Promise<{ items: StoredBlob[]; next: string | null }>;
}

/** How far a comparison came: to go on from. */
export interface MergePosition {
  /** The last blob that was compared; '' for none. */
  after: string;
  /** Of the page that what follows lies on; null where the listing was read to its end. */
  cursor: string | null;
}

export const mergeStart: MergePosition = { after: '', cursor: '' };

/** What one stretch of keys showed. */
export interface Stretch {
  known: number;
  stored: number;
  /** Of what is stored. */
  bytes: number;
  /** Replicas whose bytes are believed to be there, and which are not listed, or with another size. */
  doubtful: KnownReplica[];
  /** What is listed without a replica. */
  strays: StoredBlob[];
}

/**
 * The order of two blobs by their keys, which begin with the last two digits of the id: below 0 where the first comes
 * first. '' comes before all. Makes no text: it is asked several times for each of millions.
 */
export function compareKeys(one: string, other: string): number {
  if (one === other) return 0;
  if (one === '' || other === '') return one === '' ? -1 : 1;
  return (
    one.charCodeAt(one.length - 2) - other.charCodeAt(other.length - 2) ||
    one.charCodeAt(one.length - 1) - other.charCodeAt(other.length - 1) ||
    (one < other ? -1 : 1)
  );
}

/** Walks both sides together, one stretch of keys after the other. Holds a page of each in memory, whatever their lengths. */
export class KeyMerge {
  readonly #sides: Sides;
  #known: KnownReplica[] = [];
  #knownMore = true;
  #knownAfter: string;
  #stored: StoredBlob[] = [];
  /** Where the page that is held began, and where the next one does. */
  #cursor: string | null;
  #next: string | null;
  #listed = '';
  #after: string;

  constructor(sides: Sides, from: MergePosition) {
    this.#sides = sides;
    this.#after = from.after;
    this.#knownAfter = from.after;
    this.#cursor = from.cursor;
    this.#next = from.cursor;
  }

  get position(): MergePosition {
    return { after: this.#after, cursor: this.#stored.length > 0 ? this.#cursor : this.#next };
  }

  /** Compares the next stretch; null when all was compared. Throws what reading threw, and then compared nothing. */
  async step(): Promise<Stretch | null> {
    // Of what is made meanwhile, the side that is read again for each difference should be the older one.
    await this.#readKnown();
    await this.#readStored();
    if (this.#known.length === 0 && this.#stored.length === 0) return null;
    return this.#compare(this.#bound());
  }

  async #readKnown(): Promise<void> {
    if (this.#known.length > 0 || !this.#knownMore) return;
    const { items, more } = await this.#sides.known(this.#knownAfter);
    this.#known = items;
    this.#knownAfter = items.at(-1)?.blobId ?? this.#knownAfter;
    this.#knownMore = more && items.length > 0;
  }

  async #readStored(): Promise<void> {
    while (this.#stored.length === 0 && this.#next !== null) {
      const { items, next } = await this.#sides.stored(this.#next);
      if (next === this.#next) throw unavailable('The backend does not go on with its listing.');
      for (const { blobId } of items) {
        if (compareKeys(blobId, this.#listed) <= 0) {
          throw unavailable('The backend does not list in the order of keys.');
        }
        this.#listed = blobId;
      }
      this.#stored = items.filter(({ blobId }) => compareKeys(blobId, this.#after) > 0);
      this.#cursor = this.#next;
      this.#next = next;
    }
  }

  /** Up to where both sides are known; null for all that is left. */
  #bound(): string | null {
    const ends = [
      ...(this.#knownMore ? [this.#known.at(-1)] : []),
      ...(this.#next === null ? [] : [this.#stored.at(-1)]),
    ].flatMap((last) => (last ? [last.blobId] : []));
    return ends.length === 0 ? null : ends.reduce((one, other) => (compareKeys(one, other) < 0 ? one : other));
  }

  #compare(bound: string | null): Stretch {
    const found: Stretch = { known: 0, stored: 0, bytes: 0, doubtful: [], strays: [] };
    const isWithin = (blobId: string): boolean => bound === null || compareKeys(blobId, bound) <= 0;
    const [known, stored] = [this.#known, this.#stored];
    for (;;) {
      const replica = known[found.known];
      const object = stored[found.stored];
      const mine = replica && isWithin(replica.blobId) ? replica : undefined;
      const theirs = object && isWithin(object.blobId) ? object : undefined;
      if (!mine && !theirs) break;
      const ahead = mine && theirs ? compareKeys(mine.blobId, theirs.blobId) : mine ? -1 : 1;
      if (mine && ahead <= 0) {
        found.known += 1;
        if (mine.readable && (ahead < 0 || mine.size !== theirs?.size)) found.doubtful.push(mine);
      }
      if (theirs && ahead >= 0) {
        found.stored += 1;
        found.bytes += theirs.size;
        if (ahead > 0) found.strays.push(theirs);
      }
      this.#after = (ahead <= 0 ? mine : theirs)?.blobId ?? this.#after;
    }
    this.#known = known.slice(found.known);
    this.#stored = stored.slice(found.stored);
    return found;
  }
}
