import { AppError, unavailable } from '@stowage/common/errors';
import { isId } from '@stowage/common/ids';
import type { BlobPage, ListedBlob } from './blob-store.ts';
import { blobKey } from './keys.ts';
import { oddAnswer } from './webdav-errors.ts';
import type { WebdavHttp } from './webdav-http.ts';
import type { DavEntry } from './webdav-multistatus.ts';
import type { WebdavPaths } from './webdav-paths.ts';
import { lookInto } from './webdav-propfind.ts';

interface Found {
  blobId: string;
  size: number;
  modifiedAt: Date;
}

/** What was read of a folder ahead of what was asked for: all of its blobs from `after` on, or the first of them. */
interface Ahead {
  folder: string;
  after: string;
  found: Found[];
  more: boolean;
  readAt: number;
}

/** A server can only give a folder as a whole: so many blobs of it are kept at once, for the pages that follow. */
const aheadBlobs = 50_000;

/** For how long what was read ahead is told to others. */
const aheadMs = 30_000;

const folderPattern = /^[0-9a-f]{2}$/;

/**
 * The blobs in the order of their folders and ids. Holds at most 100,000 of them in memory (some 20 MB), whatever lies in a
 * folder.
 */
export class WebdavListing {
  readonly #http: WebdavHttp;
  readonly #paths: WebdavPaths;
  #ahead: Ahead | null = null;

  constructor(http: WebdavHttp, paths: WebdavPaths) {
    this.#http = http;
    this.#paths = paths;
  }

  /** The page after `cursor`; as BlobStore.list. */
  async page(cursor: string | null, limit: number): Promise<BlobPage> {
    const from = parseCursor(cursor);
    const blobs: ListedBlob[] = [];
    for (const folder of await this.#folders(from.folder)) {
      const wanted = limit + 1 - blobs.length;
      const found = await this.#blobsIn(folder, folder === from.folder ? from.blobId : '', wanted);
      blobs.push(...found.map(({ blobId, ...rest }) => ({ key: blobKey(blobId), ...rest })));
      if (blobs.length > limit) return { blobs: blobs.slice(0, limit), next: cursorAfter(blobs[limit - 1]) };
    }
    this.#ahead = null;
    return { blobs, next: null };
  }

  async #folders(from: string): Promise<string[]> {
    const folders = new Set<string>();
    const there = await lookInto(this.#http, this.#paths, this.#paths.folder('blobs'), (name, entry) => {
      if (folderPattern.test(name) && name >= from && shown(entry).folder) folders.add(name);
    });
    if (there) return [...folders].sort();
    throw unavailable('The folders of this backend are missing on its server.');
  }

  async #blobsIn(folder: string, after: string, wanted: number): Promise<Found[]> {
    const ahead = this.#usable(folder, after, wanted) ?? (await this.#readAhead(folder, after, wanted));
    const first = ahead.found.findIndex(({ blobId }) => blobId > after);
    return first < 0 ? [] : ahead.found.slice(first, first + wanted);
  }

  #usable(folder: string, after: string, wanted: number): Ahead | null {
    const ahead = this.#ahead;
    if (ahead?.folder !== folder || after === '' || after < ahead.after) return null;
    if (performance.now() - ahead.readAt > aheadMs) return null;
    const left = ahead.found.filter(({ blobId }) => blobId > after).length;
    return left >= wanted || !ahead.more ? ahead : null;
  }

  async #readAhead(folder: string, after: string, wanted: number): Promise<Ahead> {
    const readAt = performance.now();
    const first = new FirstBlobs(Math.max(wanted, aheadBlobs));
    await lookInto(this.#http, this.#paths, this.#paths.folder('blobs', folder), (name, entry) => {
      if (name <= after || !isId(name) || !name.endsWith(folder) || shown(entry).folder) return;
      if (entry.size === null) throw oddAnswer('a listing gives a file no size');
      // What is of no known age is of none that anything may be removed for.
      first.add({ blobId: name, size: entry.size, modifiedAt: entry.modifiedAt ?? new Date() });
    });
    this.#ahead = { folder, after, readAt, ...first.result() };
    return this.#ahead;
  }
}

/** Of many blobs the first ones by id, holding no more than twice as many. */
class FirstBlobs {
  readonly #count: number;
  #found: Found[] = [];
  #more = false;

  constructor(count: number) {
    this.#count = count;
  }

  add(found: Found): void {
    this.#found.push(found);
    if (this.#found.length >= 2 * this.#count) this.#cut();
  }

  result(): { found: Found[]; more: boolean } {
    this.#cut();
    return { found: this.#found, more: this.#more };
  }

  #cut(): void {
    this.#found.sort((one, other) => (one.blobId < other.blobId ? -1 : 1));
    const single = this.#found.filter(({ blobId }, index) => blobId !== this.#found[index - 1]?.blobId);
    this.#more ||= single.length > this.#count;
    this.#found = single.slice(0, this.#count);
  }
}

/** An entry that the server could read; a listing with another one is not whole. */
function shown(entry: DavEntry): DavEntry {
  if (entry.status === null || entry.status === 200) return entry;
  throw oddAnswer(`a listing gives ${entry.status} for an entry`);
}

function cursorAfter(blob: ListedBlob | undefined): string | null {
  return blob ? blob.key.slice('blobs/'.length) : null;
}

function parseCursor(cursor: string | null): { folder: string; blobId: string } {
  if (cursor === null) return { folder: '', blobId: '' };
  const [folder = '', blobId = ''] = cursor.split('/');
  if (cursor === `${folder}/${blobId}` && folderPattern.test(folder) && isId(blobId)) return { folder, blobId };
  throw new AppError('validation_failed', 'This is not a cursor of a listing.');
}
