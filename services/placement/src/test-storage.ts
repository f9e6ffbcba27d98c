import { unavailable } from '@stowage/common/errors';
import { newId } from '@stowage/common/ids';
import { LocalConnections } from '@stowage/common/rpc/connections';
import { endpoint } from '@stowage/common/rpc/contract';
import type { Endpoint } from '@stowage/common/rpc/contract';
import { createLogger } from '@stowage/common/runtime/logger';
import { BlobService, CopyResult, VerifyResult } from '@stowage/proto/stowage/backend_registry/v1/blob';
import { ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import { ReplicaState } from '@stowage/proto/stowage/catalog/v1/node';
import { ReplicaService } from '@stowage/proto/stowage/catalog/v1/replica';
import type { ReplicaNote } from '@stowage/proto/stowage/catalog/v1/replica';
import type { Services } from './reconcile/remote-executor.ts';

interface StoredReplica {
  state: ReplicaState;
  /** What really lies there. */
  bytes: 'good' | 'bad' | 'none';
}

interface StoredBlob {
  id: string;
  fileClass: string;
  replicas: Map<string, StoredReplica>;
}

/** Of each blob, in bytes. */
const blobSize = 100n;

const good: readonly ReplicaState[] = [ReplicaState.AVAILABLE];
const bad: readonly ReplicaState[] = [ReplicaState.CORRUPT, ReplicaState.MISSING];

async function unused(): Promise<never> {
  throw new Error('placement is not expected to call this');
}

/** Stands for catalog's facts and the backends' bytes of many blobs. */
export class TestStorage {
  readonly blobs = new Map<string, StoredBlob>();
  /** What was done to bytes, in order. */
  readonly done: { kind: 'copy' | 'verify' | 'delete'; blobId: string; backendId: string }[] = [];
  /** From where each page was asked for, with a mark for damaged ones. */
  readonly pages: string[] = [];
  /** How many replicas each call told of. */
  readonly noted: number[] = [];
  /** Backends that fail all that is asked of them. */
  readonly sick = new Set<string>();
  /** Called before each copy. */
  onCopy: (blobId: string) => Promise<void> | void = () => undefined;

  /** Makes `count` blobs, each good on `backendId`; gives their ids in order. */
  fill(count: number, backendId: string, fileClass = 'image'): string[] {
    const ids = Array.from({ length: count }, () => newId());
    for (const id of ids) {
      const replica = { state: ReplicaState.AVAILABLE, bytes: 'good' } as const;
      this.blobs.set(id, { id, fileClass, replicas: new Map([[backendId, { ...replica }]]) });
    }
    return ids;
  }

  /** The backends on which a blob is recorded good. */
  goodAt(id: string): string[] {
    return [...this.#blob(id).replicas].filter(([, { state }]) => good.includes(state)).map(([backendId]) => backendId);
  }

  replica(id: string, backendId: string): StoredReplica {
    const { replicas } = this.#blob(id);
    const replica = replicas.get(backendId) ?? { state: ReplicaState.COPYING, bytes: 'none' };
    replicas.set(backendId, replica);
    return replica;
  }

  services(): Services {
    const connections = new LocalConnections(createLogger('test', 'silent'));
    connections.add('catalog', [this.replicaEndpoint(), this.contentEndpoint()], []);
    connections.add('backend-registry', [this.blobEndpoint()], []);
    return {
      replicas: connections.client(ReplicaService),
      content: connections.client(ContentService),
      blobs: connections.client(BlobService),
      readTimeoutMs: () => 60_000,
    };
  }

  replicaEndpoint(): Endpoint {
    return endpoint(ReplicaService, {
      listBlobs: async ({ after, limit, damaged }) => {
        this.pages.push(`${damaged ? 'damaged ' : ''}${after}`);
        const rest = [...this.blobs.values()].filter(({ id }) => id > after).sort((a, b) => (a.id < b.id ? -1 : 1));
        const wanted = rest.filter(
          ({ replicas }) => !damaged || [...replicas.values()].some(({ state }) => bad.includes(state)),
        );
        return { items: wanted.slice(0, limit).map(placed) };
      },
      scanBlobs: async ({ after, limit, inOrder }) => {
        this.pages.push(after);
        const rest = [...this.blobs.values()].filter(({ id }) => id > after).sort((a, b) => (a.id < b.id ? -1 : 1));
        const page = rest.slice(0, limit);
        const arranged = new Map(inOrder.map(({ fileClass, backendIds }) => [fileClass, backendIds.toSorted().join()]));
        const items = page.filter(({ fileClass, replicas }) => {
          const states = [...replicas.values()].map(({ state }) => state);
          const lies = [...replicas.keys()].toSorted().join();
          return (
            !states.every((state) => good.includes(state)) || lies !== (arranged.get(fileClass) ?? arranged.get(''))
          );
        });
        const bytes = BigInt(page.length) * blobSize;
        return { items: items.map(placed), blobs: page.length, bytes, last: page.at(-1)?.id ?? '' };
      },
      getBlob: async ({ blobId }) => ({ blob: placed(this.#blob(blobId)) }),
      noteReplicas: async ({ notes }) => {
        this.noted.push(notes.length);
        const places = new Set(notes.map(({ blobId, backendId }) => `${blobId} ${backendId}`));
        if (places.size < notes.length) throw new Error('a replica was noted twice in one call');
        return { accepted: notes.map((note) => this.#note(note)) };
      },
      claimReplicaRemoval: async ({ blobId, backendId, staying }) => {
        const accepted = staying.every((id) => good.includes(this.replica(blobId, id).state));
        if (accepted) this.replica(blobId, backendId).state = ReplicaState.REMOVING;
        return { accepted };
      },
      listStaleReplicas: unused,
      keepReplica: async ({ blobId, backendId }) => {
        this.replica(blobId, backendId).state = ReplicaState.UNVERIFIED;
        return { accepted: true };
      },
    });
  }

  contentEndpoint(): Endpoint {
    return endpoint(ContentService, {
      getContent: unused,
      getChunkChecksums: unused,
      reportReplica: unused,
      checkDestination: unused,
      commitFile: unused,
      abandonBlob: unused,
      getBackendUsage: async () => ({ usage: [] }),
      forgetBackendReplicas: unused,
      claimBlobRemoval: unused,
      forgetReplica: async ({ blobId, backendId }) => {
        this.#blob(blobId).replicas.delete(backendId);
        return {};
      },
      settleReplica: async ({ blobId, backendId, state }) => {
        this.replica(blobId, backendId).state = state;
        return {};
      },
    });
  }

  #note({ blobId, backendId, state }: ReplicaNote): boolean {
    const replica = this.replica(blobId, backendId);
    if (state === ReplicaState.COPYING && ![ReplicaState.COPYING, ...bad].includes(replica.state)) return false;
    replica.state = state;
    return true;
  }

  blobEndpoint(): Endpoint {
    return endpoint(BlobService, {
      chooseBackend: unused,
      createStaged: unused,
      statStaged: unused,
      discardStaged: unused,
      sealBlob: unused,
      deleteBlob: async ({ backendId, key }) => {
        this.#reach(backendId);
        const blobId = idIn(key);
        this.done.push({ kind: 'delete', blobId, backendId });
        this.replica(blobId, backendId).bytes = 'none';
        return {};
      },
      verifyBlob: async ({ backendId, key }) => {
        this.#reach(backendId);
        const blobId = idIn(key);
        this.done.push({ kind: 'verify', blobId, backendId });
        const { bytes } = this.replica(blobId, backendId);
        const results = { good: VerifyResult.GOOD, bad: VerifyResult.CORRUPT, none: VerifyResult.MISSING };
        return { result: results[bytes] };
      },
      copyBlob: async ({ fromBackendId, toBackendId, key }) => {
        const blobId = idIn(key);
        await this.onCopy(blobId);
        this.#reach(toBackendId);
        if (this.sick.has(fromBackendId)) return { result: CopyResult.SOURCE_UNAVAILABLE };
        const { bytes } = this.replica(blobId, fromBackendId);
        if (bytes !== 'good')
          return { result: bytes === 'bad' ? CopyResult.SOURCE_CORRUPT : CopyResult.SOURCE_MISSING };
        this.done.push({ kind: 'copy', blobId, backendId: toBackendId });
        this.replica(blobId, toBackendId).bytes = 'good';
        return { result: CopyResult.COPIED };
      },
    });
  }

  #reach(backendId: string): void {
    if (this.sick.has(backendId)) throw unavailable('The backend is away.');
  }

  #blob(id: string): StoredBlob {
    const blob = this.blobs.get(id);
    if (!blob) throw new Error(`there is no blob ${id}`);
    return blob;
  }
}

function placed({ id, fileClass, replicas }: StoredBlob) {
  return {
    id,
    size: blobSize,
    sha256: Buffer.alloc(32),
    fileClasses: [fileClass],
    replicas: [...replicas].map(([backendId, { state }]) => ({
      backendId,
      state,
      ...(good.includes(state) ? { verifiedAgoMs: 0n } : {}),
    })),
  };
}

function idIn(key: string): string {
  return key.slice(key.lastIndexOf('/') + 1);
}
