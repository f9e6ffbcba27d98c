import { LRUCache } from 'lru-cache';
import { ContentDigest } from './content-digest.ts';
import type { AppendObserver } from './stores/blob-store.ts';

const maxDigests = 2_000;
const maxBytes = 32 * 1024 * 1024;
const ttlMs = 60 * 60_000;

/**
 * Keeps the digest of growing content from one append to the next. A digest is used only where it has seen exactly
 * the bytes that are there; where none is left, sealing reads the content back, so that losing one costs only time.
 */
export class DigestCache {
  readonly #digests = new LRUCache<string, ContentDigest>({
    max: maxDigests,
    maxSize: maxBytes,
    sizeCalculation: (digest) => digest.footprint,
    ttl: ttlMs,
  });

  /** The digest of content of `size` bytes; null when it is not known. */
  find(key: string, size: number): ContentDigest | null {
    const digest = this.#digests.get(key);
    return digest?.size === size ? digest : null;
  }

  /** Keeps a digest, which must not change any more. */
  keep(key: string, digest: ContentDigest): void {
    this.#digests.set(key, digest);
  }

  forget(key: string): void {
    this.#digests.delete(key);
  }

  /** Follows an append to the content `key`. */
  observer(key: string): AppendObserver {
    let digest: ContentDigest | null = null;
    return {
      start: (offset) => {
        // A copy: of a body whose checksum is wrong nothing counts, and what was known before stays right.
        digest = offset === 0 ? new ContentDigest() : (this.find(key, offset)?.clone() ?? null);
      },
      bytes: (piece) => digest?.update(piece),
      settle: (offset) => {
        if (offset === null) this.forget(key);
        else if (digest?.size === offset) this.keep(key, digest);
      },
    };
  }
}
