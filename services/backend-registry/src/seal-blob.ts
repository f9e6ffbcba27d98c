import { LRUCache } from 'lru-cache';
import { withinWait } from '@stowage/common/within-wait';
import { AppError } from '@stowage/common/errors';
import type { Logger } from '@stowage/common/runtime/logger';
import { digestOf } from './content-digest.ts';
import type { ContentDigest, ContentFacts } from './content-digest.ts';
import type { DigestCache } from './digest-cache.ts';
import type { OpenBackends } from './open-backend.ts';
import type { AppendableStore, StagedContent } from './stores/blob-store.ts';
import { blobKey } from './stores/keys.ts';

const resultTtlMs = 10 * 60_000;
const resultBytes = 16 * 1024 * 1024;

export interface SealRequest {
  backendId: string;
  stagedId: string;
  blobId: string;
  /** In bytes, exactly. */
  size: number;
  /** What the content must hash to; null for no such demand. */
  sha256: Uint8Array | null;
}

interface Running {
  identity: string;
  work: Promise<ContentFacts>;
}

/** Seals staged content, one run at a time for each, whoever asks and however often. */
export class Seals {
  readonly #backends: Pick<OpenBackends, 'useAppendable' | 'confirm'>;
  readonly #digests: DigestCache;
  readonly #logger: Logger;
  readonly #running = new Map<string, Running>();
  readonly #stop = new AbortController();
  readonly #results = new LRUCache<string, ContentFacts>({
    ttl: resultTtlMs,
    maxSize: resultBytes,
    sizeCalculation: (facts) => facts.chunkCrc32c.length + facts.head.length + 512,
  });

  constructor(needs: {
    backends: Pick<OpenBackends, 'useAppendable' | 'confirm'>;
    digests: DigestCache;
    logger: Logger;
  }) {
    this.#backends = needs.backends;
    this.#digests = needs.digests;
    this.#logger = needs.logger;
  }

  /**
   * Checks staged content and moves it, durably, to the blob's key. Null when that takes longer than `waitMs`: it goes
   * on, and asking again joins it or gets the result. Throws `upload_incomplete` (members `offset`, `length`) and
   * `checksum_mismatch` (the content stays; member `sealed`: as a blob), `not_found`, `unavailable`.
   */
  async seal(request: SealRequest, waitMs: number): Promise<ContentFacts | null> {
    const { work } = this.#join(request);
    const facts = await withinWait(work, waitMs);
    if (facts === null) {
      work.catch((error: unknown) => {
        this.#logger.warn({ err: error, staged_id: request.stagedId }, 'A seal that nobody waited for failed.');
      });
    }
    return facts;
  }

  /** Waits up to `graceMs` for what runs, then gives it up: whoever asks again starts it anew. */
  async stop(graceMs: number): Promise<void> {
    const running = Promise.allSettled([...this.#running.values()].map(({ work }) => work));
    await withinWait(running, graceMs);
    this.#stop.abort(new AppError('unavailable', 'The service stops: try again.', { members: { retry_after: 2 } }));
    await running;
  }

  #join(request: SealRequest): Running {
    const key = contentKey(request.backendId, request.stagedId);
    const identity = JSON.stringify([request.blobId, request.size, request.sha256 && Buffer.from(request.sha256)]);
    const before = this.#running.get(key);
    if (before?.identity === identity) return before;
    // One that asks for something else, such as another sha256, has its turn afterwards.
    const turn = before ? before.work.then(ignore, ignore) : Promise.resolve();
    const running = { identity, work: turn.then(() => this.#run(key, request)) };
    this.#running.set(key, running);
    const done = (): void => {
      if (this.#running.get(key) === running) this.#running.delete(key);
    };
    running.work.then(done, done);
    return running;
  }

  async #run(key: string, request: SealRequest): Promise<ContentFacts> {
    const { store, facts } = await this.#backends.useAppendable(request.backendId, async (used) => {
      const found = (await this.#remembered(used, key, request)) ?? (await this.#sealIn(used, key, request));
      return { store: used, facts: found };
    });
    requireFacts(facts, request, true);
    await this.#backends.confirm(request.backendId, store);
    this.#results.set(`${key}/${request.blobId}`, facts);
    this.#digests.forget(key);
    return facts;
  }

  /** What an earlier run found, provided that the blob was not removed since. */
  async #remembered(store: AppendableStore, key: string, request: SealRequest): Promise<ContentFacts | null> {
    const facts = this.#results.get(`${key}/${request.blobId}`);
    if (!facts) return null;
    const found = await store.stat(blobKey(request.blobId));
    return found?.size === facts.size ? facts : null;
  }

  async #sealIn(store: AppendableStore, key: string, request: SealRequest): Promise<ContentFacts> {
    let facts: ContentFacts | null = null;
    const seal = (): Promise<boolean> =>
      store.seal(request.stagedId, blobKey(request.blobId), async (content, discarded) => {
        requireSize(content.size, request);
        const digest = await this.#digestOf(content, key, discarded);
        facts = digest.facts();
        requireFacts(facts, request, false);
      });
    try {
      await seal();
    } catch (error) {
      // Another process may have sealed it from under this one.
      const found = await store.stat(blobKey(request.blobId)).catch(() => null);
      if (found?.size !== request.size) throw error;
      // That it can be seen does not make it durable: sealing once more does, or fails.
      await seal();
      return this.#factsOfSealed(store, request);
    }
    return facts ?? this.#factsOfSealed(store, request);
  }

  async #digestOf(content: StagedContent, key: string, discarded: AbortSignal): Promise<ContentDigest> {
    const known = this.#digests.find(key, content.size);
    if (known) return known;
    const stopped = AbortSignal.any([discarded, this.#stop.signal]);
    const digest = await digestOf(await content.read(stopped));
    // A seal that is refused now, for a wrong sha256, need not read it again.
    this.#digests.keep(key, digest);
    return digest;
  }

  /** A seal that was repeated finds the blob at its key: what it holds is read back. */
  async #factsOfSealed(store: AppendableStore, request: SealRequest): Promise<ContentFacts> {
    const key = blobKey(request.blobId);
    const found = await store.stat(key);
    if (!found) throw new AppError('not_found', 'There is no such upload on this backend.');
    requireSize(found.size, request);
    return (await digestOf(await store.read(key, { start: 0, end: found.size }, this.#stop.signal))).facts();
  }
}

/** Under which name the digest of staged content is kept. */
export function contentKey(backendId: string, stagedId: string): string {
  return `${backendId}/${stagedId}`;
}

function requireSize(size: number, request: SealRequest): void {
  if (size === request.size) return;
  throw new AppError('upload_incomplete', `The upload holds ${size} of ${request.size} bytes.`, {
    members: { offset: size, length: request.size },
  });
}

function requireFacts(facts: ContentFacts, request: SealRequest, sealed: boolean): void {
  requireSize(facts.size, request);
  if (request.sha256 === null || facts.sha256.equals(request.sha256)) return;
  throw new AppError('checksum_mismatch', 'The content does not have the sha256 that was given.', {
    members: { sealed },
  });
}

function ignore(): void {}
