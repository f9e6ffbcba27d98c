import { AppError, unavailable } from '@stowage/common/errors';
import { backgroundContext } from '@stowage/common/rpc/context';
import type { CallContext } from '@stowage/common/rpc/context';
import type { Client } from '@stowage/common/rpc/contract';
import type { Logger } from '@stowage/common/runtime/logger';
import { withinWait } from '@stowage/common/within-wait';
import { CopyResult } from '@stowage/proto/stowage/backend_registry/v1/blob';
import type { BlobService } from '@stowage/proto/stowage/backend_registry/v1/blob';
import type { PolicyService } from '@stowage/proto/stowage/placement/v1/policy';
import type { SealedUpload } from './seal-upload.ts';

interface Needs {
  blobs: Client<typeof BlobService>;
  policies: Client<typeof PolicyService>;
  logger: Logger;
}

/** A backend that takes a copy slower than this is taken for one that hangs. */
const slowestBytesPerMs = 2_048;
const marginMs = 10 * 60_000;

/** Makes the copies that a policy wants to be durable before a file is acknowledged. */
export class SyncCopies {
  readonly #needs: Needs;
  /** By blob and backend. What a request did not wait for goes on, and the next one joins it. */
  readonly #running = new Map<string, Promise<boolean>>();
  readonly #stop = new AbortController();

  constructor(needs: Needs) {
    this.#needs = needs;
  }

  /**
   * The backends that hold the content durably: where it was sealed, and so many more that `sync_replicas` is reached.
   * Null when that takes longer than `waitMs`: it goes on, ask again. Throws `unavailable` where it can't be reached.
   */
  async make(
    blobId: string,
    fileClass: string,
    sealed: SealedUpload,
    waitMs: number,
    context: CallContext,
  ): Promise<string[] | null> {
    const { policy } = await this.#needs.policies.getPolicy({ fileClass }, context);
    const holders = [sealed.backendId];
    const wanted = policy?.syncReplicas ?? 1;
    if (wanted <= 1) return holders;
    const until = performance.now() + waitMs;
    for (const backendId of policy?.backendIds ?? []) {
      if (holders.length >= wanted) break;
      if (holders.includes(backendId)) continue;
      const made = await withinWait(this.#copy(blobId, backendId, sealed), until - performance.now());
      if (made === null) return null;
      if (made) holders.push(backendId);
    }
    if (holders.length >= wanted) return holders;
    const detail = `Only ${holders.length} of the ${wanted} copies that its policy wants at once can be made just now.`;
    throw unavailable(detail, undefined, 10);
  }

  stop(): void {
    this.#stop.abort(unavailable('The service stops: try again.', undefined, 2));
  }

  async #copy(blobId: string, backendId: string, sealed: SealedUpload): Promise<boolean> {
    const key = `${blobId}/${backendId}`;
    const running = this.#running.get(key) ?? this.#run(backendId, sealed).finally(() => this.#running.delete(key));
    this.#running.set(key, running);
    return running;
  }

  /** False where this backend can't have it just now: the next one of the policy may. */
  async #run(backendId: string, { backendId: fromBackendId, key, size, sha256 }: SealedUpload): Promise<boolean> {
    const { blobs, logger } = this.#needs;
    const request = { fromBackendId, toBackendId: backendId, key, size, sha256, urgent: true };
    const timeoutMs = marginMs + Math.ceil(Number(size) / slowestBytesPerMs);
    try {
      const { result } = await blobs.copyBlob(request, backgroundContext(this.#stop.signal), { timeoutMs });
      if (result === CopyResult.COPIED) return true;
      logger.warn({ backend_id: fromBackendId, key, result }, 'Sealed content could not be copied from its backend.');
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      logger.warn({ err: error, backend_id: backendId, key }, 'A copy could not be made before the answer.');
    }
    return false;
  }
}
