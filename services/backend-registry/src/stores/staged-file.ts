import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import path from 'node:path';
import { unavailable } from '@stowage/common/errors';
import { hasCode, openRegular, removeDurably, removeIfThere, temporaryOf, writeDurably } from './local-files.ts';
import type { OpenFile } from './local-files.ts';
import { lockedError } from './staged-claims.ts';
import { writePieces } from './write-pieces.ts';

/**
 * One piece of staged content as a file. While a body with a checksum is being written, a side file `<id>.limit` holds
 * the offset up to which the content counts, so that a crash can't make unchecked bytes count.
 */
export class StagedFile {
  readonly #handle: FileHandle;
  readonly #limitFile: string;
  readonly #sizeAtOpen: number;
  /** Where the content ends unless another process changes it too. */
  #end: number;
  #limited = false;

  private constructor({ handle, size }: OpenFile, limitFile: string) {
    this.#handle = handle;
    this.#sizeAtOpen = size;
    this.#end = size;
    this.#limitFile = limitFile;
  }

  /** Opens `staging/<stagedId>`; null when there is none. */
  static async open(staging: string, stagedId: string): Promise<StagedFile | null> {
    const opened = await openRegular(path.join(staging, stagedId), constants.O_RDWR);
    return opened && new StagedFile(opened, limitFileOf(staging, stagedId));
  }

  /** Makes `staging/<stagedId>`, whose entry is not durable yet; null when something is there already. */
  static async create(staging: string, stagedId: string): Promise<StagedFile | null> {
    const flags = constants.O_RDWR | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
    const handle = await open(path.join(staging, stagedId), flags, 0o600).catch((error: unknown) => {
      if (hasCode(error, 'EEXIST')) return null;
      throw error;
    });
    return handle && new StagedFile({ handle, size: 0 }, limitFileOf(staging, stagedId));
  }

  /** The size in bytes when it was opened; right where no body with a checksum was ever begun. */
  get sizeAtOpen(): number {
    return this.#sizeAtOpen;
  }

  /** What counts, in bytes, of the size when it was opened; for who only looks, perhaps while another process writes. */
  async countedSize(): Promise<number> {
    return Math.min((await this.#readLimit()) ?? this.#sizeAtOpen, this.#sizeAtOpen);
  }

  /**
   * Throws `locked` where the content is not as this holder left it: a process that stood still for long finds that
   * another one went on in its place.
   */
  async requireOwn(): Promise<void> {
    const { size } = await this.#handle.stat();
    if (size !== this.#end) throw lockedError();
  }

  /** The size in bytes when it was opened, after cutting off what a crash left of a body with a checksum. */
  async settledSize(): Promise<number> {
    const size = this.#sizeAtOpen;
    const limit = await this.#readLimit();
    if (limit === null) return size;
    this.#limited = true;
    const settled = Math.min(limit, size);
    await this.rollBack(settled);
    return settled;
  }

  /** Makes it durable that only what lies before `offset` counts, until syncOrVoid or rollBack. */
  async limitTo(offset: number): Promise<void> {
    await this.requireOwn();
    await writeDurably(this.#limitFile, String(offset), soleWriter);
    this.#limited = true;
  }

  /** Writes all pieces at `position`; `onWritten` hears of every part that the system took. */
  async write(pieces: readonly Buffer[], position: number, onWritten: (bytes: number) => void): Promise<void> {
    await this.requireOwn();
    await writePieces(this.#handle, pieces, position, (bytes) => {
      this.#end += bytes;
      onWritten(bytes);
    });
  }

  /**
   * Makes the content durable, and count. When the system can't, whatever was written since `floor` is void, for pages
   * that failed are marked clean and a second fsync would only seem to succeed: the content is cut back to `floor`.
   */
  async syncOrVoid(floor: number): Promise<void> {
    try {
      await this.#handle.datasync();
      await this.#liftLimit();
    } catch (error) {
      await this.rollBack(floor);
      throw error;
    }
  }

  /** Makes the content durable; for while another holds the claim, whose own sync then voids what failed. */
  async sync(): Promise<void> {
    await this.#handle.datasync();
  }

  /** Cuts the content back to `offset`, durably. */
  async rollBack(offset: number): Promise<void> {
    await this.requireOwn();
    await this.#handle.truncate(offset);
    this.#end = offset;
    await this.#handle.sync();
    await this.#liftLimit();
  }

  async close(): Promise<void> {
    await this.#handle.close();
  }

  async #liftLimit(): Promise<void> {
    if (!this.#limited) return;
    await this.requireOwn();
    await removeDurably(this.#limitFile);
    this.#limited = false;
  }

  async #readLimit(): Promise<number | null> {
    const opened = await openRegular(this.#limitFile, constants.O_RDONLY);
    if (!opened) return null;
    const { handle } = opened;
    try {
      const text = await handle.readFile('utf8');
      if (!/^\d{1,16}$/.test(text)) throw unavailable('This upload was damaged on the disk: start it again.');
      return Number(text);
    } finally {
      await handle.close();
    }
  }
}

/** The claim lets one writer at a time write the side file. */
const soleWriter = 'new';

/** Removes what a crash left of a side file that was about to be. */
export async function removeHalfLimit(staging: string, stagedId: string): Promise<void> {
  await removeIfThere(temporaryOf(limitFileOf(staging, stagedId), soleWriter));
}

/** The side file of staged content. */
export function limitFileOf(staging: string, stagedId: string): string {
  return path.join(staging, `${stagedId}.limit`);
}
