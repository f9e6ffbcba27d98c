import { constants } from 'node:fs';
import { lstat, mkdir, realpath, statfs } from 'node:fs/promises';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { AppError, unavailable } from '@stowage/common/errors';
import type { Append, AppendableStore, ByteRange, StagedContent } from './blob-store.ts';
import { BlobStream } from './blob-stream.ts';
import { readMarker } from './identity-marker.ts';
import { checkedId, parseBlobKey } from './keys.ts';
import {
  directoryInside,
  guarded,
  hasCode,
  makeDirectory,
  openRegular,
  removeDurably,
  sweepTemporaries,
  syncDirectory,
} from './local-files.ts';
import { LocalStaging, stagingFolder } from './local-staging.ts';

const blobsFolder = 'blobs';

/** How long free space is believed: it is a first guess anyway, and many small uploads come at once. */
const freeBelievedMs = 1_000;

/**
 * Blobs as plain files under one directory: `blobs/<xx>/<blob id>`, growing content as `staging/<staged id>`.
 * No symbolic link below the root is followed; the root itself may be one. One process at a time may write to the same
 * staged content: who holds it is kept in memory.
 */
export class LocalDirectory implements AppendableStore {
  readonly #root: string;
  readonly #staging: LocalStaging;
  /** Folders whose own entry is known to be durable. */
  readonly #settledFolders = new Set<string>();
  #free = { bytes: 0, believedUntil: 0 };

  private constructor(root: string) {
    this.#root = root;
    this.#staging = new LocalStaging(root);
  }

  /** The store at `rootPath`, which must exist. Changes nothing there yet. */
  static async open(rootPath: string): Promise<LocalDirectory> {
    return guarded(async () => new LocalDirectory(await realpath(rootPath)));
  }

  async identity(): Promise<string | null> {
    return guarded(() => readMarker(this.#root));
  }

  async prepare(): Promise<void> {
    await guarded(async () => {
      for (const folder of [stagingFolder, blobsFolder]) await makeDirectory(path.join(this.#root, folder));
      await sweepTemporaries(this.#root);
      await this.#staging.sweep();
    });
  }

  async read(key: string, range: ByteRange, signal: AbortSignal): Promise<Readable> {
    const opened = await this.#withBlob(key, (file) => openRegular(file, constants.O_RDONLY));
    if (!opened) throw new AppError('not_found', 'There is no such blob on this backend.');
    if (opened.size >= range.end) return new BlobStream(opened.handle, range, signal);
    await opened.handle.close();
    throw new AppError('not_found', 'The blob on this backend is shorter than it should be.');
  }

  async stat(key: string): Promise<{ size: number } | null> {
    return this.#withBlob(key, async (file) => {
      const found = await lstat(file).catch((error: unknown) => {
        if (hasCode(error, 'ENOENT')) return null;
        throw error;
      });
      return found?.isFile() ? { size: found.size } : null;
    });
  }

  async delete(key: string): Promise<void> {
    await this.#withBlob(key, removeDurably);
  }

  async createStaged(stagedId: string): Promise<void> {
    await guarded(() => this.#staging.create(checkedId(stagedId)));
  }

  async stagedOffset(stagedId: string): Promise<number | null> {
    return guarded(() => this.#staging.offset(checkedId(stagedId)));
  }

  async append(append: Append, body: Readable, signal: AbortSignal): Promise<number> {
    checkedId(append.stagedId);
    return guarded(() => this.#staging.append(append, body, signal));
  }

  async seal(
    stagedId: string,
    key: string,
    check: (content: StagedContent, signal: AbortSignal) => Promise<void>,
  ): Promise<boolean> {
    const { folder, blobId } = parseBlobKey(key);
    const target = { makeFolder: () => this.#makeBlobFolder(folder), name: blobId };
    return guarded(async () => {
      const sealed = await this.#staging.seal(checkedId(stagedId), target, check);
      if (!sealed) await this.#settleBlobFolder(folder);
      return sealed;
    });
  }

  async discard(stagedId: string): Promise<void> {
    await guarded(() => this.#staging.discard(checkedId(stagedId)));
  }

  async freeBytes(enough: number): Promise<number> {
    if (this.#free.bytes < enough || this.#free.believedUntil < performance.now()) {
      const { bavail, bsize } = await guarded(() => statfs(this.#root));
      this.#free = { bytes: bavail * bsize, believedUntil: performance.now() + freeBelievedMs };
    }
    return this.#free.bytes;
  }

  async #withBlob<R>(key: string, work: (file: string) => Promise<R>): Promise<R | null> {
    const { folder, blobId } = parseBlobKey(key);
    return guarded(async () => {
      const directory = await directoryInside(this.#root, path.join(blobsFolder, folder));
      return directory === null ? null : work(path.join(directory, blobId));
    });
  }

  async #makeBlobFolder(folder: string): Promise<string> {
    const known = this.#settledFolders.has(folder);
    const found = known ? await directoryInside(this.#root, path.join(blobsFolder, folder)) : null;
    if (found !== null) return found;
    const blobs = await directoryInside(this.#root, blobsFolder);
    if (blobs === null) throw unavailable('The folders of this backend are missing: is its disk mounted?');
    const directory = path.join(blobs, folder);
    await mkdir(directory, { mode: 0o700 }).catch((error: unknown) => {
      if (!hasCode(error, 'EEXIST')) throw error;
    });
    await directoryInside(blobs, folder);
    // One that was there already may have been made by a process that crashed before this.
    await syncDirectory(blobs);
    this.#settledFolders.add(folder);
    return directory;
  }

  /** A seal that was repeated after a crash finds its blob moved, but perhaps not durably yet. */
  async #settleBlobFolder(folder: string): Promise<void> {
    const directory = await directoryInside(this.#root, path.join(blobsFolder, folder));
    if (directory !== null) await syncDirectory(directory);
  }
}
