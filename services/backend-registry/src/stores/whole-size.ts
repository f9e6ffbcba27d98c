import { AppError } from '@stowage/common/errors';
import type { ByteRange } from './blob-store.ts';

/** Throws as BlobStore.read says where a blob has another size, in bytes, than the reader knows it to have. */
export function requireWholeSize(size: number, { of }: ByteRange): void {
  if (of === undefined || size === of) return;
  if (size < of) throw new AppError('not_found', 'The blob on this backend is shorter than it should be.');
  throw new AppError('checksum_mismatch', 'The blob on this backend is longer than it should be.');
}
