import { constants } from 'node:fs';
import { lstat, mkdir, open, readdir, realpath, rename, unlink } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import path from 'node:path';
import { randomUUID } from 'node:crypto';
import { AppError, unavailable } from '@stowage/common/errors';

const temporarySuffix = '.tmp';

/** Whether `error` is an error of the operating system with one of these codes. */
export function hasCode(error: unknown, ...codes: string[]): boolean {
  const code = systemCode(error);
  return code !== null && codes.includes(code);
}

/** Told by its shape: errors of the file system are of another realm than a test's `Error`. */
function systemCode(error: unknown): string | null {
  if (typeof error !== 'object' || error === null || !('code' in error) || !('errno' in error)) return null;
  return typeof error.code === 'string' ? error.code : null;
}

/** Runs `work`; an error of the file system comes out as storeError makes it. */
export async function guarded<R>(work: () => Promise<R>): Promise<R> {
  try {
    return await work();
  } catch (error) {
    throw storeError(error);
  }
}

/** What a caller sees of an error of the file system: never a path. */
function storeError(error: unknown): unknown {
  if (error instanceof AppError) return error;
  if (hasCode(error, 'ENOSPC', 'EDQUOT', 'EFBIG')) {
    return new AppError('insufficient_storage', 'The backend is full: free some space or use another backend.', {
      cause: error,
    });
  }
  const code = systemCode(error);
  return code === null ? error : unavailable(troubles.get(code) ?? 'The backend can not be used just now.', error);
}

/** What an admin has to mend. */
const troubles = new Map([
  ['EROFS', 'The disk of this backend is read-only.'],
  ['EIO', 'The disk of this backend fails: it tells of an I/O error.'],
  ['EACCES', 'The folder of this backend does not permit this to the service: check its owner and its rights.'],
]);

/** A regular file that is open, with the size that it had then. */
export interface OpenFile {
  handle: FileHandle;
  size: number;
}

/** Opens a regular file; null when there is none, or something else (a link, a pipe, a folder) in its place. */
export async function openRegular(file: string, flags: number): Promise<OpenFile | null> {
  let handle: FileHandle;
  try {
    // O_NONBLOCK: a pipe planted there must not hang the thread.
    handle = await open(file, flags | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ENOTDIR', 'ELOOP', 'EMLINK', 'ENXIO', 'EISDIR')) return null;
    throw error;
  }
  try {
    const stats = await handle.stat();
    if (stats.isFile()) return { handle, size: stats.size };
  } catch (error) {
    await handle.close();
    throw error;
  }
  await handle.close();
  return null;
}

/**
 * `root/relative` when it is a directory that is reached without a symbolic link, null when it does not exist.
 * `root` must be a real path. Throws `unavailable` where a link leads elsewhere.
 */
export async function directoryInside(root: string, relative: string): Promise<string | null> {
  const directory = path.join(root, relative);
  try {
    if ((await realpath(directory)) === directory) return directory;
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return null;
    throw error;
  }
  throw unavailable(
    'A folder of this backend is a symbolic link, which is not followed: replace it by the folder itself.',
  );
}

/** Makes the entries of a directory durable. */
export async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Makes the entries of one busy directory durable; those who ask while it is being done share the next turn. */
export class SharedSync {
  readonly #directory: string;
  #running: Promise<void> | null = null;
  #next: Promise<void> | null = null;

  constructor(directory: string) {
    this.#directory = directory;
  }

  async sync(): Promise<void> {
    // The one that runs may have begun before our change, so only one that starts from now on will do.
    this.#next ??= this.#after(this.#running);
    return this.#next;
  }

  async #after(running: Promise<void> | null): Promise<void> {
    await running?.catch(() => undefined);
    const own = syncDirectory(this.#directory);
    this.#running = this.#next;
    this.#next = null;
    return own;
  }
}

/** Makes a directory with its ancestors (0700), durably. */
export async function makeDirectory(directory: string): Promise<void> {
  const first = await mkdir(directory, { recursive: true, mode: 0o700 });
  if (first === undefined) return;
  for (let made = directory; made.length >= first.length; made = path.dirname(made)) {
    await syncDirectory(path.dirname(made));
  }
}

/**
 * Writes a small file: after a crash at any moment it is there whole, or not at all. `unique` names what a crash may leave
 * behind; one writer at a time may use the same.
 */
export async function writeDurably(file: string, content: string, unique: string = randomUUID()): Promise<void> {
  const temporary = temporaryOf(file, unique);
  await removeIfThere(temporary);
  const handle = await open(temporary, 'wx', 0o600);
  try {
    await handle.writeFile(content);
    await handle.sync();
  } finally {
    await handle.close();
  }
  await rename(temporary, file);
  await syncDirectory(path.dirname(file));
}

/** Where writeDurably writes before it renames. */
export function temporaryOf(file: string, unique: string): string {
  return `${file}.${unique}${temporarySuffix}`;
}

/** Removes a name without following it; missing is success. */
export async function removeIfThere(file: string): Promise<void> {
  await unlink(file).catch((error: unknown) => {
    if (!hasCode(error, 'ENOENT')) throw error;
  });
}

/** As removeIfThere, durably. */
export async function removeDurably(file: string): Promise<void> {
  await removeIfThere(file);
  // Also when it was gone already: whoever removed it may have crashed before this.
  await syncDirectory(path.dirname(file));
}

/** Removes what writes left half-done in a directory before `before`, which no process can still be writing. Gives how many. */
export async function sweepTemporaries(directory: string, before: Date): Promise<number> {
  let swept = 0;
  for (const name of await readdir(directory)) {
    if (!name.endsWith(temporarySuffix)) continue;
    const file = path.join(directory, name);
    const found = await lstat(file).catch(nullIfMissing);
    if (!found?.isFile() || found.mtime >= before) continue;
    await removeDurably(file);
    swept += 1;
  }
  return swept;
}

/** For `catch`: null for an error that says that there is no such file. */
export function nullIfMissing(error: unknown): null {
  if (hasCode(error, 'ENOENT')) return null;
  throw error;
}
