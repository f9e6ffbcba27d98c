import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { lstat, mkdir, open, rename } from 'node:fs/promises';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { AppError, unavailable } from '@stowage/common/errors';
import type { BlobPage, ByteRange, ExpectedContent } from './blob-store.ts';
import { BlobStream } from './blob-stream.ts';
import { CheckedBody } from './checked-body.ts';
import { placeOfKey } from './keys.ts';
import { blobFolders, listFolders } from './local-listing.ts';
import {
  directoryInside,
  hasCode,
  nullIfMissing,
  openRegular,
  removeDurably,
  removeIfThere,
  sweepTemporaries,
  syncDirectory,
  temporaryOf,
} from './local-files.ts';
import { requireWholeSize } from './whole-size.ts';
import { writePieces } from './write-pieces.ts';

export const blobsFolder = 'blobs';
const exportsFolder = 'exports';

/** The whole blobs of a local directory, as `blobs/<xx>/<blob id>`, and kept exports. Each method as BlobStore says. */
export class LocalBlobs {
  readonly #root: string;
  /** Folders whose own entry is known to be durable. */
  readonly #settledFolders = new Set<string>();

  /** `root` is a real path. */
  constructor(root: string) {
    this.#root = root;
  }

  async read(key: string, range: ByteRange, signal: AbortSignal): Promise<Readable> {
    const opened = await this.#withBlob(key, (file) => openRegular(file, constants.O_RDONLY));
    if (!opened) throw new AppError('not_found', 'There is no such blob on this backend.');
    try {
      requireWholeSize(opened.size, opened.size < range.end ? { ...range, of: range.end } : range);
    } catch (error) {
      await opened.handle.close();
      throw error;
    }
    return new BlobStream(opened.handle, range, signal);
  }

  async stat(key: string): Promise<{ size: number } | null> {
    return this.#withBlob(key, async (file) => {
      const found = await lstat(file).catch(nullIfMissing);
      return found?.isFile() ? { size: found.size } : null;
    });
  }

  async delete(key: string): Promise<void> {
    await this.#withBlob(key, removeDurably);
  }

  async write(key: string, content: ExpectedContent, body: Readable, signal: AbortSignal): Promise<void> {
    const { folder, name } = placeOfKey(key);
    const file = path.join(await this.makeFolder(folder), name);
    const temporary = temporaryOf(file, randomUUID());
    try {
      await writeChecked(temporary, content, body, signal);
      await rename(temporary, file);
    } catch (error) {
      await removeIfThere(temporary);
      throw error;
    }
    await syncDirectory(path.dirname(file));
  }

  async list(cursor: string | null, limit: number): Promise<BlobPage> {
    return listFolders(await this.#directory(), cursor, limit);
  }

  async sweep(before: Date): Promise<number> {
    const folders = (await blobFolders(await this.#directory())).map(({ directory }) => directory);
    const ofExports = await directoryInside(this.#root, exportsFolder);
    let swept = 0;
    for (const directory of ofExports === null ? folders : [...folders, ofExports]) {
      swept += await sweepTemporaries(directory, before);
    }
    return swept;
  }

  /** Makes the folder of an object, durably. */
  async makeFolder(folder: string): Promise<string> {
    const known = this.#settledFolders.has(folder);
    const found = known ? await directoryInside(this.#root, folder) : null;
    if (found !== null) return found;
    // Without it the disk is not mounted, and nothing may be made in its place.
    await this.#directory();
    const directory = path.join(this.#root, folder);
    await mkdir(directory, { mode: 0o700 }).catch((error: unknown) => {
      if (!hasCode(error, 'EEXIST')) throw error;
    });
    await directoryInside(this.#root, folder);
    // One that was there already may have been made by a process that crashed before this.
    await syncDirectory(path.dirname(directory));
    this.#settledFolders.add(folder);
    return directory;
  }

  /** A seal that was repeated after a crash finds its blob moved, but perhaps not durably yet. */
  async settleFolder(folder: string): Promise<void> {
    const directory = await directoryInside(this.#root, folder);
    if (directory !== null) await syncDirectory(directory);
  }

  async #withBlob<R>(key: string, work: (file: string) => Promise<R>): Promise<R | null> {
    const { folder, name } = placeOfKey(key);
    const directory = await directoryInside(this.#root, folder);
    return directory === null ? null : work(path.join(directory, name));
  }

  async #directory(): Promise<string> {
    const directory = await directoryInside(this.#root, blobsFolder);
    if (directory === null) throw unavailable('The folders of this backend are missing: is its disk mounted?');
    return directory;
  }
}

/** A new file with the whole body, durable but for its entry. */
async function writeChecked(
  file: string,
  content: ExpectedContent,
  body: Readable,
  signal: AbortSignal,
): Promise<void> {
  const checked = new CheckedBody(content, body, signal);
  let handle;
  try {
    handle = await open(file, 'wx', 0o600);
    let position = 0;
    for (let batch = await checked.next(); batch !== null; batch = await checked.next()) {
      await writePieces(handle, batch, position, (bytes) => {
        position += bytes;
      });
    }
    await handle.sync();
  } finally {
    checked.stop();
    await handle?.close();
  }
}
