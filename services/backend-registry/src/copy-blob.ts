import { AppError } from '@stowage/common/errors';
import { CopyResult } from '@stowage/proto/stowage/backend_registry/v1/blob';
import type { Kysely } from 'kysely';
import type { Bandwidth } from './bandwidth.ts';
import { findBackend } from './backend-row.ts';
import type { OpenBackends } from './open-backend.ts';
import type { BlobStore } from './stores/blob-store.ts';
import type { Tables } from './tables.ts';
import type { BlobClaim } from './verify-blob.ts';

interface Needs {
  db: Kysely<Tables>;
  backends: OpenBackends;
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
  return typeof source === 'number' ? source : copyContent(source, store, blob, bandwidth, signal);
}

/** The store of the source, or why it can't be copied from. Its marker is looked at, so that missing means missing. */
async function readable(backends: OpenBackends, from: string, blob: BlobClaim): Promise<BlobStore | CopyResult> {
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
