import { AppError } from '@stowage/common/errors';
import { CopyResult, VerifyResult } from '@stowage/proto/stowage/backend_registry/v1/blob';
import type { Kysely } from 'kysely';
import type { Bandwidth } from './bandwidth.ts';
import { findBackend } from './backend-row.ts';
import type { OpenBackends } from './open-backend.ts';
import type { BlobStore } from './stores/blob-store.ts';
import type { Tables } from './tables.ts';
import { verifyBlob } from './verify-blob.ts';
import type { BlobClaim } from './verify-blob.ts';

interface Needs {
  db: Kysely<Tables>;
  backends: Pick<OpenBackends, 'recheck'>;
  /** Held back by it. */
  bandwidth: Bandwidth;
}

/**
 * Copies a blob from one backend to another, where it becomes visible once all of it hashed right. What is wrong with the
 * source is the result; throws what the target failed with: `not_found`, `state_conflict` for a disabled one,
 * `insufficient_storage`, `unavailable`.
 */
export async function copyBlob(
  { db, backends, bandwidth }: Needs,
  { from, to, blob }: { from: string; to: string; blob: BlobClaim },
  signal: AbortSignal,
): Promise<CopyResult> {
  const target = await findBackend(db, to);
  if (!target.enabled) throw new AppError('state_conflict', 'The backend to copy to is disabled.');
  const store = await backends.recheck(to);
  const source = await readable(backends, from, blob);
  if (typeof source === 'number') return source;
  return (
    (await copyOnServer(source, store, blob, bandwidth, signal)) ?? copyContent(source, store, blob, bandwidth, signal)
  );
}

/** The store of the source, or why it can't be copied from. Its marker is looked at, so that missing means missing. */
async function readable(backends: Needs['backends'], from: string, blob: BlobClaim): Promise<BlobStore | CopyResult> {
  try {
    const store = await backends.recheck(from);
    const found = await store.stat(blob.key);
    if (!found || found.size < blob.size) return CopyResult.SOURCE_MISSING;
    return found.size > blob.size ? CopyResult.SOURCE_CORRUPT : store;
  } catch (error) {
    if (error instanceof AppError) return CopyResult.SOURCE_UNAVAILABLE;
    throw error;
  }
}

/**
 * Has the server of both copy, once what it will copy was read here and hashed right. Null where it can't, or will not: the
 * content goes through here then.
 */
async function copyOnServer(
  source: BlobStore,
  target: BlobStore,
  blob: BlobClaim,
  bandwidth: Bandwidth,
  signal: AbortSignal,
): Promise<CopyResult | null> {
  const copy = await nullIfFailed(target.serverCopy(source, blob.key), signal);
  if (!copy) return null;
  const verdict = await nullIfFailed(verifyBlob(source, blob, bandwidth, signal), signal);
  if (verdict !== VerifyResult.GOOD) return verdict === null ? CopyResult.SOURCE_UNAVAILABLE : badSource(verdict);
  const made = copy.make(signal).then(() => CopyResult.COPIED);
  return nullIfFailed<CopyResult>(made, signal);
}

function badSource(verdict: VerifyResult): CopyResult {
  return verdict === VerifyResult.CORRUPT ? CopyResult.SOURCE_CORRUPT : CopyResult.SOURCE_MISSING;
}

/** Null for what a store failed with; what the caller cancelled is thrown. */
async function nullIfFailed<R>(work: Promise<R>, signal: AbortSignal): Promise<R | null> {
  return work.catch((error: unknown) => {
    if (signal.aborted || !(error instanceof AppError)) throw error;
    return null;
  });
}

async function copyContent(
  source: BlobStore,
  target: BlobStore,
  { key, size, sha256 }: BlobClaim,
  bandwidth: Bandwidth,
  signal: AbortSignal,
): Promise<CopyResult> {
  const fault: { error: Error | null } = { error: null };
  const read = await source.read(key, { start: 0, end: size }, signal).catch((error: unknown) => {
    if (error instanceof AppError) return null;
    throw error;
  });
  if (read === null) return CopyResult.SOURCE_UNAVAILABLE;
  read.on('error', (error) => (fault.error = error));
  const body = bandwidth.limit(read, signal);
  try {
    await target.write(key, { size, sha256 }, body, signal);
    return CopyResult.COPIED;
  } catch (error) {
    if (signal.aborted || !(error instanceof AppError)) throw error;
    if (fault.error !== null) return CopyResult.SOURCE_UNAVAILABLE;
    if (error.code === 'checksum_mismatch' || error.code === 'upload_incomplete') return CopyResult.SOURCE_CORRUPT;
    throw error;
  } finally {
    body.destroy();
    read.destroy();
  }
}
