import { blobKey } from '@stowage/common/blob-key';
import { AppError } from '@stowage/common/errors';
import type { CallContext } from '@stowage/common/rpc/context';
import type { Client } from '@stowage/common/rpc/contract';
import { CopyResult, VerifyResult } from '@stowage/proto/stowage/backend_registry/v1/blob';
import type { BlobService } from '@stowage/proto/stowage/backend_registry/v1/blob';
import type { ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import { ReplicaState } from '@stowage/proto/stowage/catalog/v1/node';
import type { PlacedBlob, ReplicaService } from '@stowage/proto/stowage/catalog/v1/replica';
import { deleteTimeoutMs } from '../deadlines.ts';
import type { ReadTimeout } from '../deadlines.ts';
import type { RecordedState } from '../planner/facts.ts';
import type { BlobFacts, CopyVerdict, Executor, Note, Verdict } from './executor.ts';
import { NoteBatches } from './note-batches.ts';

/** The services that a plan is carried out through. */
export interface Services {
  content: Client<typeof ContentService>;
  blobs: Client<typeof BlobService>;
  replicas: Client<typeof ReplicaService>;
  /** How long a call may take that reads or copies a blob. */
  readTimeoutMs: ReadTimeout;
}

const recordedStates = new Map<ReplicaState, RecordedState>([
  [ReplicaState.AVAILABLE, 'available'],
  [ReplicaState.UNVERIFIED, 'unverified'],
  [ReplicaState.COPYING, 'copying'],
  [ReplicaState.CORRUPT, 'corrupt'],
  [ReplicaState.MISSING, 'missing'],
  [ReplicaState.REMOVING, 'removing'],
]);

const copyVerdicts = new Map<CopyResult, CopyVerdict>([
  [CopyResult.COPIED, 'copied'],
  [CopyResult.SOURCE_CORRUPT, 'source_corrupt'],
  [CopyResult.SOURCE_MISSING, 'source_missing'],
  [CopyResult.SOURCE_UNAVAILABLE, 'source_unavailable'],
]);

const verdicts = new Map<VerifyResult, Verdict>([
  [VerifyResult.GOOD, 'available'],
  [VerifyResult.CORRUPT, 'corrupt'],
  [VerifyResult.MISSING, 'missing'],
]);

const settledStates = {
  available: ReplicaState.AVAILABLE,
  corrupt: ReplicaState.CORRUPT,
  missing: ReplicaState.MISSING,
} as const;

/** Bytes through backend-registry, facts through catalog. `freshMs` is what the planner takes for freshly verified. */
export class RemoteExecutor implements Executor {
  readonly #services: Services;
  readonly #context: CallContext;
  readonly #freshMs: number;
  readonly #batches: NoteBatches;

  constructor(services: Services, context: CallContext, freshMs: number) {
    this.#services = services;
    this.#context = context;
    this.#freshMs = freshMs;
    this.#batches = new NoteBatches(services.replicas, context);
  }

  async copy(blob: BlobFacts, from: string, to: string): Promise<CopyVerdict> {
    const { key, size, sha256 } = blob;
    const wanted = { fromBackendId: from, toBackendId: to, key, size, sha256 };
    const { blobs, readTimeoutMs } = this.#services;
    const { result } = await blobs.copyBlob(wanted, this.#context, { timeoutMs: readTimeoutMs(size) });
    return known(copyVerdicts.get(result), result);
  }

  async verify({ key, size, sha256 }: BlobFacts, backendId: string): Promise<Verdict> {
    const wanted = { backendId, key, size, sha256 };
    const { blobs, readTimeoutMs } = this.#services;
    const { result } = await blobs.verifyBlob(wanted, this.#context, { timeoutMs: readTimeoutMs(size) });
    return known(verdicts.get(result), result);
  }

  async remove({ key }: BlobFacts, backendId: string, withinMs = deleteTimeoutMs): Promise<void> {
    await this.#services.blobs.deleteBlob({ backendId, key }, this.#context, { timeoutMs: withinMs });
  }

  async note({ id: blobId, key }: BlobFacts, note: Note): Promise<boolean> {
    const { replicas, content } = this.#services;
    const replica = { blobId, backendId: note.backendId };
    switch (note.kind) {
      case 'copying':
        return this.#batches.note({ ...replica, state: ReplicaState.COPYING, key });
      case 'copied':
        return this.#batches.note({ ...replica, state: ReplicaState.UNVERIFIED });
      case 'settled':
        return this.#batches.note({
          ...replica,
          state: settledStates[note.state],
          readAgoMs: BigInt(Math.ceil(note.readAgoMs)),
        });
      case 'removing': {
        const claim = { ...replica, staying: [...note.staying], verifiedWithinMs: BigInt(this.#freshMs) };
        return (await replicas.claimReplicaRemoval(claim, this.#context)).accepted;
      }
      case 'removed':
        await content.forgetReplica(replica, this.#context);
        return true;
      case 'kept':
        return (await replicas.keepReplica(replica, this.#context)).accepted;
    }
  }

  async reload(blobId: string): Promise<BlobFacts | null> {
    try {
      const { blob } = await this.#services.replicas.getBlob({ blobId }, this.#context);
      return blob ? blobFacts(blob) : null;
    } catch (error) {
      if (error instanceof AppError && error.code === 'not_found') return null;
      throw error;
    }
  }
}

export function blobFacts(blob: PlacedBlob): BlobFacts {
  return {
    id: blob.id,
    key: blobKey(blob.id),
    size: blob.size,
    sha256: blob.sha256,
    fileClasses: blob.fileClasses,
    replicas: blob.replicas.map(({ backendId, state, verifiedAgoMs }) => ({
      backendId,
      state: known(recordedStates.get(state), state),
      verifiedAgoMs: verifiedAgoMs === undefined ? null : Number(verifiedAgoMs),
    })),
  };
}

function known<T>(value: T | undefined, number: number): T {
  if (value === undefined) throw new Error(`${number} is a state that this version does not know`);
  return value;
}
