import { unavailable } from '@stowage/common/errors';
import type { ModelBlob, ModelCatalog } from '@stowage/tests/support/model-catalog';
import type { PlanLimits } from '../planner/facts.ts';
import type { BlobFacts, CopyVerdict, Executor, Note, Verdict } from '../reconcile/executor.ts';
import type { SimulatedStores } from './simulated-stores.ts';
import type { SimulatedProcess, SimulatedTime } from './simulated-time.ts';

export interface World {
  time: SimulatedTime;
  stores: SimulatedStores;
  catalog: ModelCatalog;
  limits: PlanLimits;
  /** How likely a call fails, before or after its work, and its process stands still with the answer. */
  failureRate: number;
  freeze(process: SimulatedProcess): void;
  /** Copies that were made, and neither noted nor removed yet by whoever made them: `backend blob`. */
  unnoted: Set<string>;
  /** How often bytes were changed. */
  changes: number;
  /** Called after each change of bytes. */
  check(): void;
  /** Ends the run: this must never be. */
  violated(what: string): never;
}

const noteTimeoutMs = 10_000;
const readTimeoutMs = 600_000;
/** How many times as likely a process stands still after a removal was claimed. */
const claimRisk = 10;
export const deleteTimeoutMs = 60_000;

/** The calls of one process to catalog and to the stores; each may be late, fail, or lose its answer. */
export class SimulatedExecutor implements Executor {
  readonly #world: World;
  readonly #process: SimulatedProcess;
  readonly #signal: AbortSignal;

  constructor(world: World, process: SimulatedProcess, signal: AbortSignal) {
    this.#world = world;
    this.#process = process;
    this.#signal = signal;
  }

  async copy({ id }: BlobFacts, from: string, to: string): Promise<CopyVerdict> {
    const { stores, time } = this.#world;
    return this.call(readTimeoutMs, async () => {
      if (!stores.at(to).enabled) throw unavailable('The target is disabled.');
      this.#reach(to);
      if (!stores.at(from).up) return 'source_unavailable';
      const read = stores.read(from, id);
      if (read !== 'available') return read === 'corrupt' ? 'source_corrupt' : 'source_missing';
      await time.turn(null);
      this.#reach(to);
      stores.put(to, id);
      this.#world.unnoted.add(`${to} ${id}`);
      this.#changed();
      return 'copied';
    });
  }

  async verify({ id }: BlobFacts, backendId: string): Promise<Verdict> {
    return this.call(readTimeoutMs, async () => {
      this.#reach(backendId);
      return this.#world.stores.read(backendId, id);
    });
  }

  async remove({ id }: BlobFacts, backendId: string, withinMs = deleteTimeoutMs): Promise<void> {
    return this.call(Math.min(deleteTimeoutMs, withinMs), async () => {
      this.#reach(backendId);
      const state = this.#world.catalog.blobs.get(id)?.replicas.get(backendId)?.state;
      if (state === 'available' || state === 'unverified') this.#world.violated(`${id} on ${backendId} was to stay`);
      this.#world.stores.at(backendId).objects.delete(id);
      this.#world.unnoted.delete(`${backendId} ${id}`);
      this.#changed();
    });
  }

  async note({ id }: BlobFacts, note: Note): Promise<boolean> {
    // Right after such a claim it is worst to stand still.
    const risk = note.kind === 'removing' ? claimRisk : 1;
    return this.call(noteTimeoutMs, async () => this.#take(id, note), risk);
  }

  async reload(blobId: string): Promise<BlobFacts | null> {
    return this.call(noteTimeoutMs, async () => {
      const blob = this.#world.catalog.getBlob(blobId);
      return blob && this.facts(blob);
    });
  }

  facts(blob: ModelBlob): BlobFacts {
    const { now } = this.#world.time;
    const replicas = [...blob.replicas].map(([backendId, { state, verifiedAt }]) => ({
      ...{ backendId, state },
      verifiedAgoMs: verifiedAt === null ? null : now - verifiedAt,
    }));
    const fileClasses = [...new Set(blob.files.values())];
    return { id: blob.id, key: blob.id, size: 1n, sha256: Buffer.alloc(32), fileClasses, replicas };
  }

  /** A call from the process: begun when it is its turn, done by a server unless its time is over, answered or not. */
  async call<R>(timeoutMs: number, work: () => Promise<R>, risk = 1): Promise<R> {
    const { time } = this.#world;
    const fails = (times = 1): boolean => time.random.chance(times * this.#world.failureRate);
    const deadline = time.now + timeoutMs;
    await time.turn(this.#process);
    this.#requireTime(deadline);
    if (fails()) throw unavailable('It failed.');
    await time.turn(null);
    const done = time.now > deadline ? null : await settled(work);
    const isLost = fails();
    await time.turn(this.#process);
    this.#requireTime(deadline);
    if (done === null || isLost) throw unavailable('The answer was lost.');
    // It can stand still at any moment, also with the answer in its hands.
    if (fails(risk)) this.#world.freeze(this.#process);
    await time.turn(this.#process);
    if ('error' in done) throw done.error;
    return done.result;
  }

  #requireTime(deadline: number): void {
    if (this.#signal.aborted || this.#world.time.now > deadline) throw unavailable('It is too late for this.');
  }

  #reach(backendId: string): void {
    if (!this.#world.stores.at(backendId).up) throw unavailable('The backend is down.');
  }

  #changed(): void {
    this.#world.changes += 1;
    this.#world.check();
  }

  /** What is recorded as read at a time was not read before it. */
  #requireTrue(blobId: string, backendId: string): void {
    const replica = this.#world.catalog.blobs.get(blobId)?.replicas.get(backendId);
    const seenAt = this.#world.stores.at(backendId).objects.get(blobId)?.seenAt ?? Infinity;
    if (replica?.state === 'available' && (replica.verifiedAt ?? 0) > seenAt + noteTimeoutMs)
      this.#world.violated(`${blobId} on ${backendId} was not read as late as is recorded`);
  }

  #take(blobId: string, note: Note): boolean {
    const { catalog, limits } = this.#world;
    const { backendId } = note;
    switch (note.kind) {
      case 'copying':
        return catalog.beginReplica(blobId, backendId);
      case 'copied': {
        const accepted = catalog.addReplica(blobId, backendId);
        if (accepted) this.#world.unnoted.delete(`${backendId} ${blobId}`);
        return accepted;
      }
      case 'settled':
        catalog.settleReplica(blobId, backendId, note.state, note.readAgoMs);
        this.#requireTrue(blobId, backendId);
        return true;
      case 'removing':
        return catalog.claimReplicaRemoval(blobId, backendId, note.staying, limits.freshMs);
      case 'removed':
        catalog.forgetReplica(blobId, backendId);
        return true;
      case 'kept':
        return catalog.keepReplica(blobId, backendId);
    }
  }
}

/** An error of the work is the server's answer, too. */
async function settled<R>(work: () => Promise<R>): Promise<{ result: R } | { error: unknown }> {
  try {
    return { result: await work() };
  } catch (error) {
    return { error };
  }
}
