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
}

/** What befalls the next operations, one each; nothing does once they are used up. */
export type Fate = 'fine' | 'crash before' | 'crash after' | 'fails' | 'fails after';

/** The process is gone: nothing after this is done. */
export class Crash extends Error {}

export const limits: PlanLimits = { outageGraceMs: 6 * 3_600_000, freshMs: 3_600_000 };

/** One blob, its replicas on simulated backends, and catalog's guards over them. Checks at each operation that no good copy is lost. */
export class SimulatedWorld implements Executor {
  readonly backends: Map<string, SimulatedBackend>;
  readonly policies: readonly WantedCopies[];
  /** What was done to bytes, in order. */
  readonly done: string[] = [];
  readonly #fates: Fate[];

  constructor(backends: readonly SimulatedBackend[], policies: readonly WantedCopies[], fates: readonly Fate[] = []) {
    this.backends = new Map(backends.map((backend) => [backend.id, { ...backend }]));
    this.policies = policies;
    this.#fates = [...fates];
  }

  /** The same world once policies have changed. */
  with(policies: readonly WantedCopies[]): SimulatedWorld {
    return new SimulatedWorld([...this.backends.values()], policies, this.#fates);
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
      const wanted = Math.max(...this.policies.map(({ replicas }) => replicas));
      const wasGood = backend.truth === 'good';
      backend.truth = 'absent';
      this.done.push(`remove ${backendId}`);
      if (wasGood && this.good(true).length < wanted) throw new Error(`too few good copies after ${this.done.join()}`);
    });
  }

  async note(_blob: BlobFacts, note: Note): Promise<boolean> {
    return this.#befall(() => this.#take(note));
  }

  async reload(): Promise<BlobFacts> {
    return this.#befall(() => this.blob());
  }

  /** The guards of services/catalog/src/replica-notes.ts. */
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
        if (!note.staying.every((id) => this.#isFresh(id))) return false;
        backend.recorded = { state: 'removing', verifiedAgoMs };
        return true;
      case 'removed':
        if (state === 'removing') backend.recorded = null;
        return backend.recorded === null;
      case 'kept':
        if (state !== 'removing') return false;
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

  #befall<R>(operation: () => R): R {
    const fate = this.#fates.shift() ?? 'fine';
    const before = this.good().length;
    if (fate === 'crash before') throw new Crash();
    if (fate === 'fails') throw unavailable('It failed.');
    const result = operation();
    if (before > 0 && this.good().length === 0) throw new Error(`the last good copy is gone: ${this.done.join()}`);
    if (fate === 'crash after') throw new Crash();
    if (fate === 'fails after') throw new AppError('internal', 'It was done, and the answer was lost.');
    return result;
  }

  #at(id: string): SimulatedBackend {
    const backend = this.backends.get(id);
    if (!backend) throw new Error(`there is no backend ${id}`);
    return backend;
  }
}
