import { createHash, randomUUID } from 'node:crypto';
import { open, unlink } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { AppError } from '@stowage/common/errors';

/** A stream that was written to a file which has no name any more: a crash leaves nothing of it. */
export interface Spool {
  /** In bytes. */
  size: number;
  sha256: Buffer;
  /** All of it, from the start; once at a time. */
  read(): Readable;
  close(): Promise<void>;
}

/**
 * Reads `body` to its end, into a file, so that its length is known before it is sent. Throws what broke it, and
 * `insufficient_storage` where there is no room for it.
 */
export async function spool(body: Readable, signal: AbortSignal): Promise<Spool> {
  try {
    return await write(body, signal);
  } catch (error) {
    throw isFull(error) ? new AppError('insufficient_storage', noRoom, { cause: error }) : error;
  } finally {
    body.destroy();
  }
}

const noRoom = 'The folder for temporary files (TMPDIR) has no room for an export.';

async function write(body: Readable, signal: AbortSignal): Promise<Spool> {
  const handle = await openNameless();
  try {
    const hash = createHash('sha256');
    let size = 0;
    for await (const piece of body) {
      signal.throwIfAborted();
      hash.update(piece);
      await handle.writeFile(piece);
      size += piece.length;
    }
    const read = (): Readable => handle.createReadStream({ start: 0, autoClose: false, highWaterMark: 256 * 1024 });
    return { size, sha256: hash.digest(), read, close: () => handle.close() };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** Told by its shape: errors of the file system are of another realm than a test's `Error`. */
function isFull(error: unknown): boolean {
  const code = typeof error === 'object' && error !== null && 'code' in error ? error.code : null;
  return code === 'ENOSPC' || code === 'EDQUOT';
}

async function openNameless(): Promise<FileHandle> {
  const file = path.join(tmpdir(), `stowage-export-${randomUUID()}`);
  const handle = await open(file, 'wx+', 0o600);
  await unlink(file);
  return handle;
}
