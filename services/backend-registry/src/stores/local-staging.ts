import { constants } from 'node:fs';
import { rename } from 'node:fs/promises';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { LRUCache } from 'lru-cache';
import { AppError, unavailable } from '@stowage/common/errors';
import type { Append, StagedContent, StagedPage } from './blob-store.ts';
import { BlobStream } from './blob-stream.ts';
import { appendToFile } from './local-append.ts';
import {
  directoryInside,
  hasCode,
  openRegular,
  removeDurably,
  SharedSync,
  sweepTemporaries,
  syncDirectory,
} from './local-files.ts';
import { listStagedFiles } from './local-listing.ts';
import { fences, StagedClaims } from './staged-claims.ts';
import type { Claim } from './staged-claims.ts';
import { limitFileOf, removeHalfLimit, StagedFile } from './staged-file.ts';

export const stagingFolder = 'staging';

const rememberedOffsets = 10_000;

/** The growing content of a local directory, as `staging/<staged id>`. Each method as AppendableStore says. */
export class LocalStaging {
  readonly #root: string;
  readonly #claims = new StagedClaims();
  readonly #entries: SharedSync;
  /** What this process made durable: a look at it costs no fsync, and one that fails voids nothing of it. */
  readonly #durable = new LRUCache<string, number>({ max: rememberedOffsets });

  /** The size of what one body without a checksum made in this process: it has no side file while it is of that size. */
  readonly #plain = new LRUCache<string, number>({ max: rememberedOffsets });

  /** `root` is a real path. */
  constructor(root: string) {
    this.#root = root;
    this.#entries = new SharedSync(path.join(root, stagingFolder));
  }

  /** Removes what half-written side files left before `before`; gives how many. */
  async sweep(before: Date): Promise<number> {
    return sweepTemporaries(await this.#directory(), before);
  }

  async list(cursor: string | null, limit: number): Promise<StagedPage> {
    return listStagedFiles(await this.#directory(), cursor, limit);
  }

  async create(id: string): Promise<void> {
    const staging = await this.#directory();
    const file = await StagedFile.create(staging, id);
    if (file) await file.close();
    else await this.#requireFile(staging, id);
    await this.#entries.sync();
    if (file) this.#durable.set(id, 0);
  }

  async offset(id: string): Promise<number | null> {
    while (this.#claims.held(id)) {
      const counted = await this.#claims.counted(id);
      if (counted === null) return null;
      if (counted !== undefined) return this.#withFile(id, (file) => this.#durableWhileClaimed(file, id, counted));
    }
    const claim = await this.#claims.take(id, fences.look);
    try {
      return await this.#withFile(id, async (file) => {
        const size = await file.countedSize();
        claim.found(size);
        return this.#makeDurable(file, id, size);
      });
    } finally {
      claim.release();
    }
  }

  async append(append: Append, body: Readable, signal: AbortSignal): Promise<number> {
    const id = append.stagedId;
    const claim = await this.#claims.take(id, append.fence, signal);
    try {
      if (append.create) return await this.#appendFirst(append, body, claim);
      this.#plain.delete(id);
      const offset = await this.#withFile(id, async (file) => {
        await this.#requirePlace(file, append, claim);
        return appendToFile(file, append, body, claim, () => this.#durable.get(id) ?? 0);
      });
      if (offset === null) throw new AppError('not_found', 'There is no such upload on this backend.');
      this.#durable.set(id, offset);
      return offset;
    } finally {
      claim.release();
    }
  }

  /** Has `check` look at the content and then moves it to `target`, whose folder `makeFolder` makes. */
  async seal(
    id: string,
    target: { makeFolder: () => Promise<string>; name: string },
    check: (content: StagedContent, signal: AbortSignal) => Promise<void>,
  ): Promise<boolean> {
    const claim = await this.#claims.take(id, fences.seal);
    try {
      const sealed = await this.#withFile(id, async (file, staging) => {
        const plain = this.#plain.get(id) === file.sizeAtOpen;
        const size = plain ? file.sizeAtOpen : await file.settledSize();
        claim.found(size);
        await check({ size, read: (signal) => this.#read(staging, id, size, signal) }, claim.signal);
        // The entry becomes durable at its new place.
        if (this.#durable.get(id) !== size) await file.syncOrVoid(this.#durable.get(id) ?? 0);
        const folder = await target.makeFolder();
        if (!plain) await removeHalfLimit(staging, id);
        claim.signal.throwIfAborted();
        if (!(await moved(path.join(staging, id), path.join(folder, target.name)))) return false;
        // A journal keeps both ends of a rename together.
        await syncDirectory(folder);
        return true;
      });
      return sealed ?? false;
    } finally {
      claim.release();
    }
  }

  async discard(id: string): Promise<void> {
    const claim = await this.#claims.take(id, fences.discard);
    try {
      claim.found(null);
      const staging = await this.#directory();
      this.#durable.delete(id);
      this.#plain.delete(id);
      // The side file goes last: without it, what it holds back would count.
      await removeDurably(path.join(staging, id));
      await removeHalfLimit(staging, id);
      await removeDurably(limitFileOf(staging, id));
    } finally {
      claim.release();
    }
  }

  /** Content that one body fills is left to sealing to make durable: nobody goes on from there. */
  async #appendFirst(append: Append, body: Readable, claim: Claim): Promise<number> {
    const id = append.stagedId;
    const file = await StagedFile.create(await this.#directory(), id);
    if (!file) throw new AppError('state_conflict', 'There is such an upload on this backend already.');
    try {
      claim.found(0);
      const offset = await appendToFile(file, append, body, claim, () => this.#durable.get(id) ?? 0);
      if (append.checksum === null) this.#plain.set(id, offset);
      if (offset === append.limit) return offset;
      await this.#entries.sync();
      this.#durable.set(id, offset);
      return offset;
    } finally {
      await file.close();
    }
  }

  async #requirePlace(file: StagedFile, append: Append, claim: Claim): Promise<void> {
    const size = await file.settledSize();
    claim.found(size);
    if (size !== append.offset) {
      const offset = await this.#makeDurable(file, append.stagedId, size);
      throw new AppError('offset_conflict', `The upload goes on at byte ${offset}.`, { members: { offset } });
    }
    if (append.offset > append.limit) {
      throw new AppError('payload_too_large', 'The upload is longer than it may be.');
    }
  }

  async #makeDurable(file: StagedFile, id: string, size: number): Promise<number> {
    if (this.#durable.get(id) === size) return size;
    await file.syncOrVoid(this.#durable.get(id) ?? 0);
    // Made before a restart, or by one body: its entry may not be durable either.
    if (!this.#durable.has(id)) await this.#entries.sync();
    this.#durable.set(id, size);
    return size;
  }

  async #durableWhileClaimed(file: StagedFile, id: string, counted: number): Promise<number> {
    if (this.#durable.get(id) === counted) return counted;
    await file.sync();
    this.#durable.set(id, Math.max(counted, this.#durable.get(id) ?? 0));
    return counted;
  }

  async #read(staging: string, id: string, size: number, signal: AbortSignal): Promise<Readable> {
    const opened = await openRegular(path.join(staging, id), constants.O_RDONLY);
    if (!opened) throw new AppError('not_found', 'There is no such upload on this backend.');
    return new BlobStream(opened.handle, { start: 0, end: size }, signal);
  }

  async #withFile<R>(id: string, work: (file: StagedFile, staging: string) => Promise<R>): Promise<R | null> {
    const staging = await this.#directory();
    const file = await StagedFile.open(staging, id);
    if (!file) return null;
    try {
      return await work(file, staging);
    } finally {
      await file.close();
    }
  }

  async #requireFile(staging: string, id: string): Promise<void> {
    const file = await StagedFile.open(staging, id);
    if (!file) throw unavailable('Something else lies in the place of this upload on the backend.');
    await file.close();
  }

  async #directory(): Promise<string> {
    const directory = await directoryInside(this.#root, stagingFolder);
    if (directory === null) throw unavailable('The folders of this backend are missing: is its disk mounted?');
    return directory;
  }
}

/** Renames; false where there is nothing to rename, as another process did. */
async function moved(from: string, to: string): Promise<boolean> {
  try {
    await rename(from, to);
    return true;
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return false;
    throw error;
  }
}
