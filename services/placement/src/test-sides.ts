import { unavailable } from '@stowage/common/errors';
import { newId } from '@stowage/common/ids';
import { LocalConnections } from '@stowage/common/rpc/connections';
import { endpoint } from '@stowage/common/rpc/contract';
import { createLogger } from '@stowage/common/runtime/logger';
import { StoredService } from '@stowage/proto/stowage/backend_registry/v1/stored';
import { BlobStanding, ComparisonService } from '@stowage/proto/stowage/catalog/v1/comparison';
import { ReplicaState } from '@stowage/proto/stowage/catalog/v1/node';
import type { BothSides } from './reconcile/compare-backend.ts';
import { compareKeys } from './reconcile/compare-merge.ts';
import type { TestStorage } from './test-storage.ts';

interface Listed {
  size: number;
  modifiedAt: Date;
}

const blobSize = 100;

/** What the backends of a TestStorage list, beside it what nobody knows, and what the metadata tells of both. */
export class TestSides {
  readonly #storage: TestStorage;
  /** By backend, then by blob id. */
  readonly #unknown = new Map<string, Map<string, Listed>>();
  /** Blobs that are listed with another size than they have. */
  readonly truncated = new Set<string>();
  /** Of uploads that are not finished. */
  readonly unfinished = new Set<string>();
  /** Backends without their marker: found after so many pages. */
  readonly unmarkedAfter = new Map<string, number>();
  /** What was given up. */
  readonly condemned: string[] = [];
  /** Each page that was asked for, as backend and cursor. */
  readonly pages: string[] = [];
  /** The size of the pages of stores. */
  pageSize = 3;
  /** Called before each page of a store. */
  onPage: () => Promise<void> | void = () => undefined;

  constructor(storage: TestStorage) {
    this.#storage = storage;
  }

  /** Puts something on a backend that nothing knows. Gives its id. */
  plant(backendId: string, { size = 7, ageMs = 0 } = {}, id = newId()): string {
    this.unknownOn(backendId).set(id, { size, modifiedAt: new Date(Date.now() - ageMs) });
    return id;
  }

  unknownOn(backendId: string): Map<string, Listed> {
    const there = this.#unknown.get(backendId) ?? new Map<string, Listed>();
    this.#unknown.set(backendId, there);
    return there;
  }

  sides(): BothSides {
    const connections = new LocalConnections(createLogger('test', 'silent'));
    connections.add('catalog', [this.#metadata()], []);
    connections.add('backend-registry', [this.#stores()], []);
    return { stored: connections.client(StoredService), comparison: connections.client(ComparisonService) };
  }

  #stores() {
    return endpoint(StoredService, {
      listStoredBlobs: async ({ backendId, cursor }) => {
        await this.onPage();
        const count = this.pages.push(`${backendId} ${cursor}`);
        if (this.#storage.sick.has(backendId)) throw unavailable('The backend is away.');
        if (count > (this.unmarkedAfter.get(backendId) ?? Infinity)) throw unavailable('There is no marker.');
        const rest = this.#listed(backendId).filter(({ blobId }) => compareKeys(blobId, cursor) > 0);
        const items = rest.slice(0, this.pageSize);
        const last = items.at(-1);
        return {
          items: items.map(({ blobId, size, modifiedAt }) => ({
            blobId,
            size: BigInt(size),
            modifiedAtMs: BigInt(modifiedAt.getTime()),
          })),
          ...(last && rest.length > items.length ? { nextCursor: last.blobId } : {}),
        };
      },
    });
  }

  #listed(backendId: string): (Listed & { blobId: string })[] {
    const known = [...this.#storage.blobs.values()].flatMap(({ id, replicas }) => {
      if ((replicas.get(backendId)?.bytes ?? 'none') === 'none') return [];
      return [{ blobId: id, size: blobSize - (this.truncated.has(id) ? 1 : 0), modifiedAt: new Date() }];
    });
    const unknown = [...this.unknownOn(backendId)].map(([blobId, listed]) => ({ blobId, ...listed }));
    return [...known, ...unknown].sort((one, other) => compareKeys(one.blobId, other.blobId));
  }

  #metadata() {
    return endpoint(ComparisonService, {
      listBackendReplicas: async ({ backendId, after, limit }) => {
        const items = [...this.#storage.blobs.values()].flatMap(({ id, replicas }) => {
          const replica = replicas.get(backendId);
          const isAfter = compareKeys(id, after) > 0;
          return replica && isAfter ? [{ blobId: id, size: BigInt(blobSize), state: replica.state }] : [];
        });
        items.sort((one, other) => compareKeys(one.blobId, other.blobId));
        return { items: items.slice(0, limit) };
      },
      lookUpBlobs: async ({ backendId, blobIds }) => ({
        standings: blobIds.map((id) => {
          const blob = this.#storage.blobs.get(id);
          if (blob) return blob.replicas.has(backendId) ? BlobStanding.HERE : BlobStanding.ELSEWHERE;
          return this.unfinished.has(id) ? BlobStanding.UNFINISHED : BlobStanding.UNKNOWN;
        }),
      }),
      adoptReplica: async ({ blobId, backendId }) => {
        const accepted = this.#storage.blobs.get(blobId)?.replicas.has(backendId) === false;
        // What lay there unknown to the metadata is what was asked about.
        if (accepted && this.unknownOn(backendId).delete(blobId)) {
          Object.assign(this.#storage.replica(blobId, backendId), { state: ReplicaState.UNVERIFIED, bytes: 'good' });
        }
        return { accepted };
      },
      condemnUnknownBlobs: async ({ backendId, blobIds }) => {
        const gone = this.#storage.blobs.size === 0 ? [] : blobIds.filter((id) => !this.#isKnown(id));
        for (const id of gone) this.unknownOn(backendId).delete(id);
        this.condemned.push(...gone);
        return { blobIds: gone };
      },
      countBlobs: async () => ({ blobs: BigInt(this.#storage.blobs.size) }),
    });
  }

  #isKnown(id: string): boolean {
    return this.#storage.blobs.has(id) || this.unfinished.has(id);
  }
}
