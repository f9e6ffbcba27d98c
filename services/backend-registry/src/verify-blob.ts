import { AppError } from '@stowage/common/errors';
import { VerifyResult } from '@stowage/proto/stowage/backend_registry/v1/blob';
import { createHash } from 'node:crypto';
import type { Bandwidth } from './bandwidth.ts';
import type { BlobStore } from './stores/blob-store.ts';

export interface BlobClaim {
  key: string;
  /** In bytes. */
  size: number;
  sha256: Uint8Array;
}

/**
 * Reads a blob from end to end and compares it with what it should be; one that is shorter is missing (contract §4).
 * What can’t be read now is `unavailable`.
 */
export async function verifyBlob(
  store: BlobStore,
  claim: BlobClaim,
  bandwidth: Bandwidth,
  signal: AbortSignal,
): Promise<VerifyResult> {
  const hash = createHash('sha256');
  try {
    const stream = await store.read(claim.key, { start: 0, end: claim.size, of: claim.size }, signal);
    for await (const piece of bandwidth.limit(stream, signal)) hash.update(piece);
  } catch (error) {
    if (error instanceof AppError && error.code === 'not_found') return VerifyResult.MISSING;
    if (error instanceof AppError && error.code === 'checksum_mismatch') return VerifyResult.CORRUPT;
    throw error;
  }
  return hash.digest().equals(claim.sha256) ? VerifyResult.GOOD : VerifyResult.CORRUPT;
}
