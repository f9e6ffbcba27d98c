import { LRUCache } from 'lru-cache';
import type { CallContext } from '@stowage/common/rpc/context';
import { readWhole } from './verified-reader.ts';
import type { BlobSource, ReaderDependencies } from './verified-reader.ts';

/** Content of up to this many bytes is sent in one piece. */
const shortBytes = 64 * 1024;

/** What is kept in memory, in bytes. */
const keptBytes = 16 * 1024 * 1024;

/** What one entry takes beside its bytes. */
const entryBytes = 300;

/**
 * Short content that was read and checked lately. A blob never changes, so what its id stands for can be kept; whether
 * the caller may have it was asked of the catalog before. Saves five calls of the file system a download.
 */
export class ShortContent {
  readonly #kept = new LRUCache<string, Buffer>({
    maxSize: keptBytes,
    sizeCalculation: (bytes) => bytes.length + entryBytes,
  });

  /** All of a blob; null for one that is not short. Throws as readVerified does. */
  async read(dependencies: ReaderDependencies, source: BlobSource, context: CallContext): Promise<Buffer | null> {
    if (source.size > shortBytes) return null;
    const kept = this.#kept.get(source.blobId);
    if (kept) return kept;
    const bytes = await readWhole(dependencies, source, source.size, context);
    this.#kept.set(source.blobId, bytes);
    return bytes;
  }
}
