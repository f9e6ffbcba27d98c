import { AppError, unavailable } from '@stowage/common/errors';
import { isReachable } from '../planner/facts.ts';
import type { BackendFacts, PlanLimits, RecordedState, WantedCopies, World } from '../planner/facts.ts';
import type { BlobToPlan } from '../planner/plan-blob.ts';
import type { BlobFacts, CopyVerdict, Executor, Note, Verdict } from './executor.ts';

/** What really lies on a backend, whatever is recorded. */
export type Truth = 'good' | 'bad' | 'absent';

export interface SimulatedBackend extends BackendFacts {
  truth: Truth;
  /** Null where nothing is recorded. */
  recorded: { state: RecordedState; verifiedAgoMs: number | null } | null;
  /** Its removal was begun so lately that bytes may still be on their way out. */
  isGoing?: boolean;
}

/** What befalls the next operations, one each; nothing does once they are used up. */
export type Fate = 'fine' | 'crash before' | 'crash after' | 'crash, done late' | 'fails' | 'fails after';

/** The process is gone: nothing after this is done. */
export class Crash extends Error {}

export const limits: PlanLimits = { outageGraceMs: 6 * 3_600_000, freshMs: 3_600_000 };

/** One blob, its replicas on simulated backends, and catalog's guards over them. Checks at each operation that no good copy is lost. */
export class SimulatedWorld implements Executor {
  readonly backends: Map<string, SimulatedBackend>;
  policies: readonly WantedCopies[];
  /** All the policies that something may still be done by; one of them has to allow each removal. */
  judges: (readonly WantedCopies[])[];
  /** Where each operation waits until it is its turn, for several runs at once. */
  turn: () => Promise<unknown> = async () => undefined;
  /** What was done to bytes, in order. */
  readonly done: string[] = [];
  readonly #fates: Fate[];
  #late: (() => void)[] = [];

  constructor(backends: readonly SimulatedBackend[], policies: readonly WantedCopies[], fates: readonly Fate[] = []) {
    this.backends = new Map(backends.map((backend) => [backend.id, { ...backend }]));
    this.policies = policies;
    this.judges = [policies];
    this.#fates = [...fates];
  }

  /** Time goes by: what was still on its way arrives, or never will. */
  pass(): void {
    for (const operation of this.#late) operation();
    this.#late = [];
    for (const backend of this.backends.values()) backend.isGoing = false;
  }

  world(): World {
    return { backends: this.backends, limits };
  }

  toPlan(blob: BlobFacts): BlobToPlan {
    return { policies: blob.fileClasses.length > 0 ? this.policies : [], replicas: blob.replicas };
  }

  blob(): BlobFacts {
    const replicas = [...this.backends.values()].flatMap(({ id, recorded }) =>
      recorded ? [{ backendId: id, ...recorded }] : [],
    );
    return { id: 'blob', key: 'key', size: 1n, sha256: Buffer.alloc(32), fileClasses: ['default'], replicas };
  }

  good(sound = false): string[] {
    const all = [...this.backends.values()].filter(({ truth }) => truth === 'good');
    return all.filter(({ enabled, health }) => !sound || (enabled && health === 'healthy')).map(({ id }) => id);
  }

  async copy(_blob: BlobFacts, from: string, to: string): Promise<CopyVerdict> {
    return this.#befall(() => {
      if (!isReachable(this.#at(from))) return 'source_unavailable';
      if (this.#at(from).truth !== 'good') return this.#at(from).truth === 'bad' ? 'source_corrupt' : 'source_missing';
      if (!isReachable(this.#at(to))) throw unavailable('The target is away.');
      if (!this.#at(to).enabled) throw new Error('copied to a disabled backend');
      this.#at(to).truth = 'good';
      this.done.push(`copy ${to}`);
      return 'copied';
    });
  }

  async verify(_blob: BlobFacts, backendId: string): Promise<Verdict> {
    return this.#befall(() => {
      if (!isReachable(this.#at(backendId))) throw unavailable('The backend is away.');
      this.done.push(`verify ${backendId}`);
      const { truth } = this.#at(backendId);
      return truth === 'good' ? 'available' : truth === 'bad' ? 'corrupt' : 'missing';
    });
  }

  async remove(_blob: BlobFacts, backendId: string): Promise<void> {
    return this.#befall(() => {
      const backend = this.#at(backendId);
      if (!isReachable(backend)) throw new Error('removed from an unhealthy backend');
      if (backend.recorded?.state !== 'removing') throw new Error('removed what is not marked');
      const wasGood = backend.truth === 'good';
      backend.truth = 'absent';
      this.done.push(`remove ${backendId}`);
      if (!this.judges.some((policies) => this.#allowed(backend, wasGood, policies)))
        throw new Error(`that may not go, after ${this.done.join()}`);
    });
  }

  async note(_blob: BlobFacts, note: Note): Promise<boolean> {
    return this.#befall(() => this.#take(note));
  }

  async reload(): Promise<BlobFacts> {
    return this.#befall(() => this.blob());
  }

  /** Rules 1 and 5: whether policies let this replica, gone by now, go. */
  #allowed({ id, enabled }: SimulatedBackend, wasGood: boolean, policies: readonly WantedCopies[]): boolean {
    const wanted = Math.max(...policies.map(({ replicas }) => replicas));
    const isNamed = policies.some(({ backendIds }) => backendIds.includes(id));
    return (enabled || !isNamed) && (!wasGood || this.good(true).length >= wanted);
  }

  /** The guards of services/catalog/src/note-replicas.ts and replica-notes.ts. */
  #take(note: Note): boolean {
    const backend = this.#at(note.backendId);
    const state = backend.recorded?.state ?? null;
    const verifiedAgoMs = backend.recorded?.verifiedAgoMs ?? null;
    switch (note.kind) {
      case 'copying':
        if (state !== null && !['copying', 'corrupt', 'missing'].includes(state)) return false;
        backend.recorded = { state: 'copying', verifiedAgoMs };
        return true;
      case 'copied':
        if (state !== 'copying') return state === 'unverified' || state === 'available';
        backend.recorded = { state: 'unverified', verifiedAgoMs };
        return true;
      case 'settled':
        if (state === null || state === 'removing' || state === 'copying') return false;
        return this.#found(note);
      case 'removing':
        if (state === null || note.staying.length === 0 || note.staying.includes(note.backendId)) return false;
        if (backend.isGoing || !note.staying.every((id) => this.#isFresh(id))) return false;
        backend.recorded = { state: 'removing', verifiedAgoMs };
        backend.isGoing = true;
        return true;
      case 'removed':
        if (state === 'removing') backend.recorded = null;
        return backend.recorded === null;
      case 'kept':
        if (state !== 'removing' || backend.isGoing) return false;
        backend.recorded = { state: 'unverified', verifiedAgoMs };
        return true;
    }
  }

  #found({ backendId, state }: { backendId: string; state: Verdict }): boolean {
    const backend = this.#at(backendId);
    const before = backend.recorded?.verifiedAgoMs ?? null;
    backend.recorded = { state, verifiedAgoMs: state === 'available' ? 0 : before };
    return true;
  }

  #isFresh(id: string): boolean {
    const recorded = this.#at(id).recorded;
    return (
      recorded?.state === 'available' && recorded.verifiedAgoMs !== null && recorded.verifiedAgoMs <= limits.freshMs
    );
  }

  async #befall<R>(operation: () => R): Promise<R> {
    await this.turn();
    const fate = this.#fates.shift() ?? 'fine';
    if (fate === 'crash before') throw new Crash();
    if (fate === 'crash, done late') {
      this.#late.push(() => this.#guarded(operation));
      throw new Crash();
    }
    if (fate === 'fails') throw unavailable('It failed.');
    const result = this.#guarded(operation);
    if (fate === 'crash after') throw new Crash();
    if (fate === 'fails after') throw new AppError('internal', 'It was done, and the answer was lost.');
    return result;
  }

  #guarded<R>(operation: () => R): R {
    const before = this.good().length;
    const result = operation();
    if (before > 0 && this.good().length === 0) throw new Error(`the last good copy is gone: ${this.done.join()}`);
    return result;
  }

  #at(id: string): SimulatedBackend {
    const backend = this.backends.get(id);
    if (!backend) throw new Error(`there is no backend ${id}`);
    return backend;
  }
}
