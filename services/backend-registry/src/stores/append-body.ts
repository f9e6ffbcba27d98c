import type { Hash } from 'node:crypto';
import type { Readable } from 'node:stream';
import { free } from '@stowage/common/bytes/free';
import { AppError } from '@stowage/common/errors';
import type { Append } from './blob-store.ts';
import { BodyBatches } from './body-batches.ts';

/** Where the content ends after a body, and what went wrong with the rest of it. */
export interface Written {
  offset: number;
  failure: unknown;
}

/** Takes pieces that belong at `position`; `onWritten` hears of every part that was taken. The pieces are freed afterwards. */
export type PieceWriter = (
  pieces: readonly Buffer[],
  position: number,
  onWritten: (bytes: number) => void,
) => Promise<void>;

/**
 * Hands the body that is to be appended to `write`, up to the limit, and shows it to the observer and to `hash`. Never
 * throws: what was written before a failure must still be settled.
 */
export async function takeBody(
  append: Append,
  body: Readable,
  signal: AbortSignal,
  hash: Hash | null,
  write: PieceWriter,
): Promise<Written> {
  let offset = append.offset;
  const batches = new BodyBatches(body, signal);
  try {
    for (let batch = await batches.next(); batch !== null; batch = await batches.next()) {
      const pieces = firstBytes(batch, append.limit - offset);
      const writing = write(pieces, offset, (bytes) => {
        offset += bytes;
      });
      // Hashed on this thread while the system writes on another.
      for (const piece of pieces) {
        append.observer.bytes(piece);
        hash?.update(piece);
      }
      await writing;
      pieces.forEach(free);
      if (pieces !== batch) throw tooLargeError();
    }
    return { offset, failure: null };
  } catch (failure) {
    return { offset, failure };
  } finally {
    batches.stop();
  }
}

/** The same array when all of it fits into `room` bytes, else a new one with what fits. */
function firstBytes(pieces: Buffer[], room: number): Buffer[] {
  const total = pieces.reduce((sum, piece) => sum + piece.length, 0);
  if (total <= room) return pieces;
  const kept: Buffer[] = [];
  let left = room;
  for (const piece of pieces) {
    if (left === 0) break;
    kept.push(piece.subarray(0, left));
    left -= Math.min(left, piece.length);
  }
  return kept;
}

function tooLargeError(): AppError {
  return new AppError('payload_too_large', 'The body is longer than the rest of the upload.');
}

/** A body that is another one than its checksum says. */
export function checksumError(): AppError {
  return new AppError(
    'chunk_checksum_mismatch',
    'The body does not match its checksum: send it again from the same offset.',
  );
}
