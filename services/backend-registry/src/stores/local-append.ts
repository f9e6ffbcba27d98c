import { createHash } from 'node:crypto';
import type { Hash } from 'node:crypto';
import type { Readable } from 'node:stream';
import { free } from '@stowage/common/bytes/free';
import { AppError } from '@stowage/common/errors';
import type { Append } from './blob-store.ts';
import { BodyBatches } from './body-batches.ts';
import type { Claim } from './staged-claims.ts';
import type { StagedFile } from './staged-file.ts';

/** Where the content ends after a body, and what went wrong with the rest of it. */
interface Written {
  offset: number;
  failure: unknown;
}

/**
 * Appends a body to a file that ends at `append.offset`, as AppendableStore.append says. Memory: one batch being
 * written and one being gathered, about 2 MiB together. `floor` tells up to where the content is known to be durable,
 * at the moment when it is asked.
 */
export async function appendToFile(
  file: StagedFile,
  append: Append,
  body: Readable,
  claim: Claim,
  floor: () => number,
): Promise<number> {
  append.observer.start(append.offset);
  let settled: number | null = null;
  try {
    const { offset, failure } = append.checksum
      ? await appendWhole(file, append, append.checksum, body, claim)
      : await appendWhatArrives(file, append, body, claim, floor);
    settled = offset;
    if (failure !== null) throw failure;
    return offset;
  } finally {
    append.observer.settle(settled);
  }
}

/** Without a checksum every byte that was written counts, whatever happens to the rest. */
async function appendWhatArrives(
  file: StagedFile,
  append: Append,
  body: Readable,
  claim: Claim,
  floor: () => number,
): Promise<Written> {
  const written = await writeBody(file, append, body, claim, null);
  if (append.create && written.failure === null && written.offset === append.limit) return written;
  // Somebody may have asked for the offset meanwhile, and was told what was durable then.
  await file.syncOrVoid(Math.max(append.offset, floor()));
  return written;
}

/** With a checksum all of the body counts, or nothing. */
async function appendWhole(
  file: StagedFile,
  append: Append,
  checksum: NonNullable<Append['checksum']>,
  body: Readable,
  claim: Claim,
): Promise<Written> {
  await file.limitTo(append.offset);
  const hash = createHash(checksum.algorithm);
  const written = await writeBody(file, append, body, claim, hash);
  const right = hash.digest().equals(checksum.digest);
  const failure = written.failure ?? (right ? null : checksumError());
  if (failure === null) {
    await file.syncOrVoid(append.offset);
    return written;
  }
  await file.rollBack(append.offset);
  return { offset: append.offset, failure };
}

/** Writes the body where the content ends. Never throws: what was written before a failure must still be settled. */
async function writeBody(
  file: StagedFile,
  append: Append,
  body: Readable,
  claim: Claim,
  hash: Hash | null,
): Promise<Written> {
  let offset = append.offset;
  const batches = new BodyBatches(body, claim.signal);
  try {
    for (let batch = await batches.next(); batch !== null; batch = await batches.next()) {
      const pieces = firstBytes(batch, append.limit - offset);
      const writing = file.write(pieces, offset, (bytes) => {
        offset += bytes;
      });
      // Hashed on this thread while the system writes on another.
      for (const piece of pieces) {
        append.observer.bytes(piece);
        hash?.update(piece);
      }
      await writing;
      pieces.forEach(free);
      if (!hash) claim.raise(offset);
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

function checksumError(): AppError {
  return new AppError(
    'chunk_checksum_mismatch',
    'The body does not match its checksum: send it again from the same offset.',
  );
}
