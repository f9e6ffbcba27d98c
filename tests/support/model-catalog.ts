/** How a replica is recorded. */
export type ModelState = 'available' | 'unverified' | 'copying' | 'corrupt' | 'missing' | 'removing';

export interface ModelReplica {
  state: ModelState;
  verifiedAt: number | null;
  removingSince: number | null;
}

export interface ModelBlob {
  id: string;
  /** Class by file. */
  files: Map<string, string>;
  /** By backend, in the order they were made. */
  replicas: Map<string, ModelReplica>;
  /** From when on it may be removed; null while a file has it. */
  deleteAfter: number | null;
}

/** A job that a change queued with it. */
export interface ModelJob {
  kind: 'verify_blob' | 'remove_blob';
  blobId: string;
  backendId?: string;
  runAfter: number;
}

const removalMaxMs = 120_000;
const removalLateMs = 600_000;

/**
 * What catalog promises of blobs and replicas, as plain as can be: the reference that the real one is compared with, and what
 * simulations run on. Times are of `now`, in ms.
 */
export class ModelCatalog {
  readonly blobs = new Map<string, ModelBlob>();
  readonly jobs: ModelJob[] = [];
  readonly backends = new Set<string>();
  readonly #now: () => number;
  readonly #graceMs: number;

  constructor(now: () => number, graceMs: number) {
    this.#now = now;
    this.#graceMs = graceMs;
  }

  /** A file of a new blob whose copies were sealed on `backendIds`; false for a blob that is there already. */
  commitFile(fileId: string, blobId: string, fileClass: string, backendIds: readonly string[]): boolean {
    if (this.blobs.has(blobId)) return false;
    const sealed = (): ModelReplica => ({ state: 'available', verifiedAt: this.#now(), removingSince: null });
    const replicas = new Map(backendIds.map((id) => [id, sealed()]));
    this.blobs.set(blobId, { id: blobId, files: new Map([[fileId, fileClass]]), replicas, deleteAfter: null });
    return true;
  }

  /** The file is gone for good; its blob follows after the grace time. */
  purgeFile(blobId: string, fileId: string): void {
    const blob = this.blobs.get(blobId);
    if (!blob?.files.delete(fileId) || blob.files.size > 0) return;
    blob.deleteAfter = this.#now() + this.#graceMs;
    this.jobs.push({ kind: 'remove_blob', blobId, runAfter: blob.deleteAfter });
  }

  beginReplica(blobId: string, backendId: string): boolean {
    const blob = this.#wanted(blobId);
    if (!blob || !this.backends.has(backendId)) return false;
    const known = blob.replicas.get(backendId);
    if (!known) blob.replicas.set(backendId, { state: 'copying', verifiedAt: null, removingSince: null });
    else if (['copying', 'corrupt', 'missing'].includes(known.state)) known.state = 'copying';
    else return false;
    return true;
  }

  addReplica(blobId: string, backendId: string): boolean {
    const replica = this.#replica(blobId, backendId);
    if (!replica || !['copying', 'unverified', 'available'].includes(replica.state)) return false;
    if (replica.state === 'copying') replica.state = 'unverified';
    return true;
  }

  /** `readAgoMs`: when the reading began that showed it. */
  settleReplica(blobId: string, backendId: string, state: 'available' | 'corrupt' | 'missing', readAgoMs = 0): void {
    const replica = this.#replica(blobId, backendId);
    if (!replica || replica.state === 'copying' || replica.state === 'removing') return;
    replica.state = state;
    if (state === 'available') replica.verifiedAt = Math.max(replica.verifiedAt ?? 0, this.#now() - readAgoMs);
  }

  reportReplica(blobId: string, backendId: string, state: 'corrupt' | 'missing'): void {
    const replica = this.#replica(blobId, backendId);
    if (replica?.state !== 'available' && replica?.state !== 'unverified') return;
    replica.state = state;
    this.jobs.push({ kind: 'verify_blob', blobId, backendId, runAfter: this.#now() });
  }

  claimReplicaRemoval(blobId: string, backendId: string, staying: readonly string[], withinMs: number): boolean {
    const blob = this.blobs.get(blobId);
    const replica = blob?.replicas.get(backendId);
    if (!blob || !replica || staying.length === 0 || staying.includes(backendId)) return false;
    const stays = (id: string): boolean => {
      const other = blob.replicas.get(id);
      return other?.state === 'available' && other.verifiedAt !== null && other.verifiedAt >= this.#now() - withinMs;
    };
    if (!this.#isAtRest(replica) || !staying.every(stays)) return false;
    replica.state = 'removing';
    replica.removingSince = this.#now();
    return true;
  }

  keepReplica(blobId: string, backendId: string): boolean {
    const replica = this.#wanted(blobId)?.replicas.get(backendId);
    if (replica?.state !== 'removing' || !this.#isAtRest(replica)) return false;
    replica.state = 'unverified';
    replica.removingSince = null;
    return true;
  }

  /** The backends that its bytes are to be removed from; none where it is wanted, or its grace time is not over. */
  claimBlobRemoval(blobId: string): string[] {
    const blob = this.blobs.get(blobId);
    if (!blob || !this.#mayGo(blob)) return [];
    for (const replica of blob.replicas.values()) replica.state = 'removing';
    if (blob.replicas.size === 0) this.blobs.delete(blobId);
    return [...blob.replicas.keys()];
  }

  forgetReplica(blobId: string, backendId: string): void {
    const blob = this.blobs.get(blobId);
    if (blob?.replicas.get(backendId)?.state === 'removing') blob.replicas.delete(backendId);
    if (blob && this.#mayGo(blob) && blob.replicas.size === 0) this.blobs.delete(blobId);
  }

  /** Queues again the removals that are due for so long that their jobs must have failed. */
  requeueRemovals(): void {
    for (const { id, deleteAfter } of this.blobs.values())
      if (deleteAfter !== null && deleteAfter < this.#now() - removalLateMs)
        this.jobs.push({ kind: 'remove_blob', blobId: id, runAfter: this.#now() });
  }

  /** Null for one that waits for its removal. */
  getBlob(blobId: string): ModelBlob | null {
    return this.#wanted(blobId) ?? null;
  }

  /** By id, all that are meant to stay, or those with a damaged replica. */
  listBlobs(damaged: boolean): ModelBlob[] {
    const isDamaged = ({ state }: ModelReplica): boolean => state === 'corrupt' || state === 'missing';
    const all = [...this.blobs.values()].filter(({ deleteAfter }) => deleteAfter === null);
    const listed = damaged ? all.filter(({ replicas }) => [...replicas.values()].some(isDamaged)) : all;
    return listed.sort((one, other) => (one.id < other.id ? -1 : 1));
  }

  #wanted(blobId: string): ModelBlob | undefined {
    const blob = this.blobs.get(blobId);
    return blob?.deleteAfter === null ? blob : undefined;
  }

  #replica(blobId: string, backendId: string): ModelReplica | undefined {
    return this.blobs.get(blobId)?.replicas.get(backendId);
  }

  #isAtRest({ state, removingSince }: ModelReplica): boolean {
    return state !== 'removing' || removingSince === null || removingSince <= this.#now() - removalMaxMs;
  }

  #mayGo({ deleteAfter, files }: ModelBlob): boolean {
    return deleteAfter !== null && deleteAfter <= this.#now() && files.size === 0;
  }
}
