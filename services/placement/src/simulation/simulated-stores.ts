import type { BackendFacts } from '../planner/facts.ts';

/** What lies under one key: whether it is what it should be, and when that was last seen for sure. */
interface StoredObject {
  good: boolean;
  /** When it was last written, or read from end to end. */
  seenAt: number;
}

export interface SimulatedStore extends BackendFacts {
  /** Answers nothing while it is down, whatever is recorded of its health. */
  up: boolean;
  healthSince: number;
  objects: Map<string, StoredObject>;
}

/** What really lies on backends. */
export class SimulatedStores {
  readonly backends = new Map<string, SimulatedStore>();
  readonly #now: () => number;

  constructor(ids: readonly string[], now: () => number) {
    this.#now = now;
    for (const id of ids) {
      this.backends.set(id, {
        ...{ id, enabled: true, health: 'healthy', healthAgeMs: 0, healthSince: 0 },
        ...{ up: true, objects: new Map() },
      });
    }
  }

  at(id: string): SimulatedStore {
    const store = this.backends.get(id);
    if (!store) throw new Error(`there is no backend ${id}`);
    return store;
  }

  /** The backends where a blob lies as it should. */
  good(blobId: string): string[] {
    return [...this.backends.values()].filter(({ objects }) => objects.get(blobId)?.good).map(({ id }) => id);
  }

  put(id: string, blobId: string): void {
    this.at(id).objects.set(blobId, { good: true, seenAt: this.#now() });
  }

  /** Reads from end to end. */
  read(id: string, blobId: string): 'available' | 'corrupt' | 'missing' {
    const object = this.at(id).objects.get(blobId);
    if (!object) return 'missing';
    if (!object.good) return 'corrupt';
    object.seenAt = this.#now();
    return 'available';
  }

  /** What a health check notes. */
  check(id: string): void {
    const store = this.at(id);
    const health = store.up ? 'healthy' : 'unhealthy';
    if (store.health === health) return;
    store.health = health;
    store.healthSince = this.#now();
  }

  /** As backend-registry tells of them now. */
  facts(): Map<string, BackendFacts> {
    const now = this.#now();
    return new Map(
      [...this.backends.values()].map(({ id, enabled, health, healthSince }) => [
        id,
        { id, enabled, health, healthAgeMs: now - healthSince },
      ]),
    );
  }
}
