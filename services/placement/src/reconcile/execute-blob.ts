import { toAppError, unavailable } from '@stowage/common/errors';
import { deleteTimeoutMs } from '../deadlines.ts';
import { planBlob } from '../planner/plan-blob.ts';
import type { BlobPlan, Step } from '../planner/plan-blob.ts';
import type { RecordedState, World } from '../planner/facts.ts';
import type { BlobFacts, Executor, View } from './executor.ts';

/** What carrying out a blob's plan came to. */
export interface BlobOutcome {
  copied: number;
  verified: number;
  removed: number;
  /** Why something could not be done now, each a sentence. */
  failures: BlobFailure[];
  /** What was left to do, or can't be done, in the end. */
  plan: BlobPlan;
}

export interface BlobFailure {
  /** The backend that failed. */
  backendId: string;
  code: string;
  detail: string;
}

export interface Needs {
  executor: Executor;
  /** Backends and policies as they are now; asked before each step, so that none is done on a view of hours ago. */
  view(): Promise<Pick<View, 'world' | 'toPlan'>>;
  signal: AbortSignal;
  /** In ms, of a clock that nobody sets. */
  now?: () => number;
}

/** A source that turns out corrupt makes one round more, and so does each refusal of catalog; this is far beyond both. */
const roundsMax = 64;
/** How often the same step is tried before the blob is left to the next run. */
const triesMax = 3;

/**
 * Plans, does the first step, and plans again from what came of it, until nothing is left: so no step is done on facts
 * that the one before has changed. A backend that fails counts as unhealthy for the rest of this blob: its replica
 * justifies nothing, and the other copies are made all the same. Throws only where `signal` aborts.
 */
export async function executeBlob(needs: Needs, blob: BlobFacts): Promise<BlobOutcome> {
  const run = new BlobRun(needs, blob);
  for (let round = 0; round < roundsMax; round += 1) {
    needs.signal.throwIfAborted();
    const step = await run.next();
    if (!step) break;
    await run.attempt(step);
  }
  return run.outcome();
}

class BlobRun {
  readonly #needs: Needs;
  readonly #tries = new Map<string, number>();
  readonly #counts = { copied: 0, verified: 0, removed: 0 };
  readonly #failures: BlobFailure[] = [];
  #blob: BlobFacts;
  #plan: BlobPlan = { steps: [], problems: [], lost: false, rescue: false };

  constructor(needs: Needs, blob: BlobFacts) {
    this.#needs = needs;
    this.#blob = blob;
  }

  /** The next step; none where nothing is left, or where what is left was tried in vain. */
  async next(): Promise<Step | null> {
    const { world, toPlan } = await this.#needs.view();
    const plan = planBlob(this.#withoutFailed(world), toPlan(this.#blob));
    this.#plan = plan;
    const step = plan.steps.find((candidate) => !plan.rescue || !this.#tries.has(nameOf(candidate)));
    if (!step) return null;
    const tries = (this.#tries.get(nameOf(step)) ?? 0) + 1;
    this.#tries.set(nameOf(step), tries);
    if (tries <= triesMax) return step;
    const detail = 'Something else is at work on this replica: it is left to a later run.';
    this.#failures.push({ backendId: targetOf(step), code: 'state_conflict', detail });
    return null;
  }

  async attempt(step: Step): Promise<void> {
    try {
      await this.#perform(step);
    } catch (error) {
      this.#needs.signal.throwIfAborted();
      const { code, detail } = toAppError(error);
      this.#failures.push({ backendId: targetOf(step), code, detail });
    }
  }

  outcome(): BlobOutcome {
    return { ...this.#counts, failures: this.#failures, plan: this.#plan };
  }

  #withoutFailed(world: World): World {
    if (this.#failures.length === 0) return world;
    const backends = new Map(world.backends);
    for (const { backendId } of this.#failures) {
      const backend = backends.get(backendId);
      if (backend) backends.set(backendId, { ...backend, health: 'unhealthy', healthAgeMs: 0 });
    }
    return { ...world, backends };
  }

  async #perform(step: Step): Promise<void> {
    switch (step.kind) {
      case 'copy':
        return this.#copy(step.from, step.to);
      case 'verify':
        return this.#verify(step.backendId);
      case 'keep':
        if (!(await this.#note({ kind: 'kept', backendId: step.backendId }))) return;
        return this.#record(step.backendId, 'unverified');
      case 'adopt':
        if (!(await this.#note({ kind: 'copied', backendId: step.backendId }))) return;
        return this.#record(step.backendId, 'unverified');
      case 'remove':
        return this.#remove(step.backendId, step.staying);
    }
  }

  async #copy(from: string, to: string): Promise<void> {
    const { executor } = this.#needs;
    if (!(await this.#note({ kind: 'copying', backendId: to }))) return;
    this.#record(to, 'copying');
    const verdict = await executor.copy(this.#blob, from, to);
    if (verdict === 'copied') {
      if (!(await this.#note({ kind: 'copied', backendId: to }))) return;
      this.#counts.copied += 1;
      return this.#record(to, 'unverified');
    }
    if (verdict === 'source_unavailable') {
      this.#failures.push({ backendId: from, code: 'unavailable', detail: 'The copy could not be read from there.' });
      return;
    }
    await this.#settle(from, verdict === 'source_corrupt' ? 'corrupt' : 'missing');
  }

  async #verify(backendId: string): Promise<void> {
    const begun = this.#now();
    const state = await this.#needs.executor.verify(this.#blob, backendId);
    this.#counts.verified += 1;
    await this.#settle(backendId, state, this.#now() - begun);
  }

  async #settle(backendId: string, state: 'available' | 'corrupt' | 'missing', readAgoMs = 0): Promise<void> {
    if (await this.#note({ kind: 'settled', backendId, state, readAgoMs })) this.#record(backendId, state);
  }

  async #remove(backendId: string, staying: readonly string[]): Promise<void> {
    const asked = this.#now();
    if (!(await this.#note({ kind: 'removing', backendId, staying }))) return;
    this.#record(backendId, 'removing');
    // After a while catalog lets others keep the replica, or make it anew: a process that stood still must not remove that.
    const leftMs = deleteTimeoutMs - (this.#now() - asked);
    if (leftMs <= 0) throw unavailable('It is too late for this removal: it was claimed too long ago.');
    await this.#needs.executor.remove(this.#blob, backendId, leftMs);
    if (!(await this.#note({ kind: 'removed', backendId }))) return;
    this.#counts.removed += 1;
    this.#record(backendId, null);
  }

  /** What catalog refuses is read anew, so that the next plan is made of what is. */
  async #note(note: Parameters<Executor['note']>[1]): Promise<boolean> {
    const { executor } = this.#needs;
    if (await executor.note(this.#blob, note)) return true;
    const now = await executor.reload(this.#blob.id);
    // Of a blob that is gone no copy may stay behind, and none is made again that this could hit, but by an import.
    if (note.kind === 'copied' && now === null && (await this.#needs.view()).world.removalsHeld !== true) {
      await executor.remove(this.#blob, note.backendId);
    }
    this.#blob = now ?? { ...this.#blob, fileClasses: [], replicas: [] };
    return false;
  }

  #now(): number {
    return this.#needs.now?.() ?? performance.now();
  }

  #record(backendId: string, state: RecordedState | null): void {
    const { replicas } = this.#blob;
    const others = replicas.filter((replica) => replica.backendId !== backendId);
    const before = replicas.find((replica) => replica.backendId === backendId);
    const verifiedAgoMs = state === 'available' ? 0 : (before?.verifiedAgoMs ?? null);
    const changed = state === null ? [] : [{ backendId, state, verifiedAgoMs }];
    this.#blob = { ...this.#blob, replicas: [...others, ...changed] };
  }
}

function targetOf(step: Step): string {
  return step.kind === 'copy' ? step.to : step.backendId;
}

function nameOf(step: Step): string {
  return step.kind === 'copy' ? `copy ${step.from} ${step.to}` : `${step.kind} ${step.backendId}`;
}
