import { realpath, statfs } from 'node:fs/promises';
import path from 'node:path';
import type { Readable } from 'node:stream';
import type {
  Append,
  AppendableStore,
  BlobPage,
  ByteRange,
  ExpectedContent,
  StagedContent,
  StagedPage,
} from './blob-store.ts';
import { claimMarker, markerFile, readMarker } from './identity-marker.ts';
import { checkedId, parseBlobKey, placeOfKey } from './keys.ts';
import { blobsFolder, LocalBlobs } from './local-blobs.ts';
import { guarded, makeDirectory, sweepTemporaries } from './local-files.ts';
import { LocalStaging, stagingFolder } from './local-staging.ts';

/** Old enough that no other process can still be writing it. */
const temporaryAgeMs = 15 * 60_000;

/** How long free space is believed: it is a first guess anyway, and many small uploads come at once. */
const freeBelievedMs = 1_000;

/**
 * Blobs as plain files under one directory: `blobs/<xx>/<blob id>`, growing content as `staging/<staged id>`, kept exports
 * in `exports`.
 * No symbolic link below the root is followed; the root itself may be one. One process at a time may write to the same
 * staged content: who holds it is kept in memory.
 */
export class LocalDirectory implements AppendableStore {
  readonly #root: string;
  readonly #staging: LocalStaging;
  readonly #blobs: LocalBlobs;
  #free = { bytes: 0, believedUntil: 0 };
  /** What was read of the marker, and from which file: asked for with each upload, it is seldom another one. */
  #marker: { file: string; identity: string | null } | null = null;

  private constructor(root: string) {
    this.#root = root;
    this.#staging = new LocalStaging(root);
    this.#blobs = new LocalBlobs(root);
  }

  /** The store at `rootPath`, which must exist. Changes nothing there yet. */
  static async open(rootPath: string): Promise<LocalDirectory> {
    return guarded(async () => new LocalDirectory(await realpath(rootPath)));
  }

  async identity(): Promise<string | null> {
    return guarded(async () => {
      const file = await markerFile(this.#root);
      if (file !== null && file === this.#marker?.file) return this.#marker.identity;
      const identity = await readMarker(this.#root);
      const isSame = file !== null && file === (await markerFile(this.#root));
      this.#marker = isSame ? { file, identity } : null;
      return identity;
    });
  }

  async claim(backendId: string): Promise<void> {
    await guarded(() => claimMarker(this.#root, backendId));
  }

  async prepare(): Promise<void> {
    await guarded(async () => {
      for (const folder of [stagingFolder, blobsFolder]) await makeDirectory(path.join(this.#root, folder));
      const before = new Date(Date.now() - temporaryAgeMs);
      await sweepTemporaries(this.#root, before);
      await this.#staging.sweep(before);
    });
  }

  async sweep(before: Date): Promise<number> {
    return guarded(async () => {
      const inRoot = await sweepTemporaries(this.#root, before);
      return inRoot + (await this.#staging.sweep(before)) + (await this.#blobs.sweep(before));
    });
  }

  async read(key: string, range: ByteRange, signal: AbortSignal): Promise<Readable> {
    return guarded(() => this.#blobs.read(key, range, signal));
  }

  async stat(key: string): Promise<{ size: number } | null> {
    return guarded(() => this.#blobs.stat(key));
  }

  async delete(key: string): Promise<void> {
    await guarded(() => this.#blobs.delete(key));
  }

  async write(key: string, content: ExpectedContent, body: Readable, signal: AbortSignal): Promise<void> {
    await guarded(() => this.#blobs.write(key, content, body, signal));
  }

  async serverCopy(): Promise<null> {
    return null;
  }

  async list(cursor: string | null, limit: number): Promise<BlobPage> {
    return guarded(() => this.#blobs.list(cursor, limit));
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
    parseBlobKey(key);
    const { folder, name } = placeOfKey(key);
    const target = { makeFolder: () => this.#blobs.makeFolder(folder), name };
    return guarded(async () => {
      const sealed = await this.#staging.seal(checkedId(stagedId), target, check);
      if (!sealed) await this.#blobs.settleFolder(folder);
      return sealed;
    });
  }

  async discard(stagedId: string): Promise<void> {
    await guarded(() => this.#staging.discard(checkedId(stagedId)));
  }

  async listStaged(cursor: string | null, limit: number): Promise<StagedPage> {
    return guarded(() => this.#staging.list(cursor, limit));
  }

  async freeBytes(enough: number): Promise<number> {
    if (this.#free.bytes < enough || this.#free.believedUntil < performance.now()) {
      const { bavail, bsize } = await guarded(() => statfs(this.#root));
      this.#free = { bytes: bavail * bsize, believedUntil: performance.now() + freeBelievedMs };
    }
    return this.#free.bytes;
  }
}
