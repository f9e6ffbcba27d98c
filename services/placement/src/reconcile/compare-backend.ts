import { blobKey } from '@stowage/common/blob-key';
import { toAppError } from '@stowage/common/errors';
import type { CallContext } from '@stowage/common/rpc/context';
import type { Client } from '@stowage/common/rpc/contract';
import type { StoredService } from '@stowage/proto/stowage/backend_registry/v1/stored';
import { BlobStanding } from '@stowage/proto/stowage/catalog/v1/comparison';
import type { ComparisonService } from '@stowage/proto/stowage/catalog/v1/comparison';
import { ReplicaState } from '@stowage/proto/stowage/catalog/v1/node';
import { KeyMerge } from './compare-merge.ts';
import type { KnownReplica, MergePosition, Sides, StoredBlob } from './compare-merge.ts';
import type { BackendReport } from './compare-report.ts';
import { eachOf } from './each-of.ts';
import type { Executor } from './executor.ts';
import type { Sighting, UnknownObjects } from './unknown-objects.ts';

/** The services that tell both sides. */
export interface BothSides {
  stored: Client<typeof StoredService>;
  comparison: Client<typeof ComparisonService>;
}

interface Needs {
  sides: BothSides;
  executor: Executor;
  unknown: UnknownObjects;
  /** How many replicas are looked at at once. */
  atOnce: number;
  context: CallContext;
  /** A disabled backend gets no replica: what was forgotten there stays so. */
  enabled: boolean;
}

const pageSize = 500;
const knownTimeoutMs = 30_000;
/** A WebDAV server may have to read a whole folder for a page. */
const listTimeoutMs = 120_000;

/**
 * Compares what one backend lists with what the metadata has there, both ways. A replica that is not listed is looked at:
 * only what the store itself says makes it missing. A known blob that has no replica there gets one, to be verified, unless
 * the backend is disabled. What nothing knows is noted, and no more: never is metadata made of it.
 */
export class BackendComparison {
  readonly #needs: Needs;
  readonly #report: BackendReport;
  readonly #sighting: Sighting;
  readonly #merge: KeyMerge;

  constructor(needs: Needs, report: BackendReport, sighting: Sighting, from: MergePosition) {
    this.#needs = needs;
    this.#report = report;
    this.#sighting = sighting;
    this.#merge = new KeyMerge(sidesOf(needs, sighting.backendId), from);
  }

  get position(): MergePosition {
    return this.#merge.position;
  }

  /** Compares the next stretch of keys; false when all was. Throws where one of the sides can't be read. */
  async step(): Promise<boolean> {
    const stretch = await this.#merge.step();
    if (!stretch) return false;
    await eachOf(stretch.doubtful, this.#needs.atOnce, (replica) => this.#look(replica));
    await this.#place(stretch.strays);
    const { counts } = this.#report;
    counts.known += stretch.known;
    counts.listed += stretch.stored;
    counts.listed_bytes += stretch.bytes;
    return true;
  }

  /** Uploads, copies and removals go on: whether it is there is asked of metadata and store as they are now. */
  async #look({ blobId }: KnownReplica): Promise<void> {
    const { executor, context } = this.#needs;
    const { backendId } = this.#sighting;
    try {
      const blob = await executor.reload(blobId);
      const replica = blob?.replicas.find((known) => known.backendId === backendId);
      if (!blob || (replica?.state !== 'available' && replica?.state !== 'unverified')) return;
      this.#report.counts.looked_at += 1;
      const begun = performance.now();
      const state = await executor.verify(blob, backendId);
      await executor.note(blob, { kind: 'settled', backendId, state, readAgoMs: performance.now() - begun });
      if (state !== 'available') this.#report.counts[state] += 1;
    } catch (error) {
      context.signal.throwIfAborted();
      const { code, detail } = toAppError(error);
      this.#report.failed(blobId, code, detail);
    }
  }

  async #place(strays: readonly StoredBlob[]): Promise<void> {
    if (strays.length === 0) return;
    const { sides, context, unknown, enabled } = this.#needs;
    const { backendId } = this.#sighting;
    const blobIds = strays.map(({ blobId }) => blobId);
    const { standings } = await sides.comparison.lookUpBlobs({ backendId, blobIds }, context);
    const are = (standing: BlobStanding): StoredBlob[] => strays.filter((_, index) => standings[index] === standing);
    for (const { blobId } of enabled ? are(BlobStanding.ELSEWHERE) : []) {
      const { accepted } = await sides.comparison.adoptReplica({ blobId, backendId }, context);
      if (accepted) this.#report.counts.adopted += 1;
    }
    const objects = are(BlobStanding.UNKNOWN).map(({ blobId, size, modifiedAt }) => ({
      key: blobKey(blobId),
      size,
      modifiedAt,
    }));
    await unknown.note(this.#sighting, objects);
    this.#report.sawUnknown(objects);
  }
}

function sidesOf({ sides, context }: Needs, backendId: string): Sides {
  return {
    known: async (after) => {
      const wanted = { backendId, after, limit: pageSize };
      const { items } = await sides.comparison.listBackendReplicas(wanted, context, { timeoutMs: knownTimeoutMs });
      return {
        items: items.map(({ blobId, size, state }) => ({ blobId, size: Number(size), readable: isReadable(state) })),
        more: items.length === pageSize,
      };
    },
    stored: async (cursor) => {
      const wanted = { backendId, cursor, limit: pageSize };
      const { items, nextCursor } = await sides.stored.listStoredBlobs(wanted, context, { timeoutMs: listTimeoutMs });
      return {
        items: items.map(({ blobId, size, modifiedAtMs }) => ({
          blobId,
          size: Number(size),
          modifiedAt: new Date(Number(modifiedAtMs)),
        })),
        next: nextCursor ?? null,
      };
    },
  };
}

function isReadable(state: ReplicaState): boolean {
  return state === ReplicaState.AVAILABLE || state === ReplicaState.UNVERIFIED;
}
