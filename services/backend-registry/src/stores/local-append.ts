import { createHash } from 'node:crypto';
import type { Hash } from 'node:crypto';
import type { Readable } from 'node:stream';
import { checksumError, takeBody } from './append-body.ts';
import type { Written } from './append-body.ts';
import type { Append } from './blob-store.ts';
import type { Claim } from './staged-claims.ts';
import type { StagedFile } from './staged-file.ts';

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
  await file.requireOwn();
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

/** Writes the body where the content ends; as takeBody. */
async function writeBody(
  file: StagedFile,
  append: Append,
  body: Readable,
  claim: Claim,
  hash: Hash | null,
): Promise<Written> {
  return takeBody(append, body, claim.signal, hash, async (pieces, position, onWritten) => {
    let offset = position;
    await file.write(pieces, position, (bytes) => {
      offset += bytes;
      onWritten(bytes);
    });
    if (!hash) claim.raise(offset);
  });
}
