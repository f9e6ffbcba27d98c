import { backoffMs } from '@stowage/common/jobs/backoff';
import type { Random } from '@stowage/tests/support/random';

export type ModelJobKind = 'place_blob' | 'verify_blob' | 'remove_blob' | 'full_reconcile';

export interface ModelJob {
  id: number;
  kind: ModelJobKind;
  blobId: string;
  backendId: string;
  state: 'pending' | 'running' | 'succeeded' | 'failed';
  attempt: number;
  fence: number;
  runAfter: number;
  leaseUntil: number;
  dedupeKey: string | null;
}

export type ModelOutcome = 'succeeded' | 'failed' | { postponedMs: number };

export const leaseMs = 30_000;
const maxAttempts = 5;

/** The queue of services/common/src/jobs as far as its rules decide who may work, and what is refused. */
export class ModelJobs {
  readonly all: ModelJob[] = [];
  readonly #now: () => number;
  readonly #random: Random;

  constructor(now: () => number, random: Random) {
    this.#now = now;
    this.#random = random;
  }

  enqueue(kind: ModelJobKind, subject: { blobId?: string; backendId?: string } = {}, runAfter = this.#now()): void {
    const { blobId = '', backendId = '' } = subject;
    const dedupeKey = kind === 'full_reconcile' ? null : `${kind} ${blobId} ${backendId}`;
    if (dedupeKey !== null && this.all.some((job) => job.state === 'pending' && job.dedupeKey === dedupeKey)) return;
    const id = this.all.length;
    this.all.push({
      ...{ id, kind, blobId, backendId, dedupeKey, runAfter },
      ...{ state: 'pending', attempt: 0, fence: 0, leaseUntil: 0 },
    });
  }

  /** The next that is due: one whose lease ran out before one that nobody began. */
  claim(): ModelJob | null {
    const now = this.#now();
    const lost = this.all.filter((job) => job.state === 'running' && job.leaseUntil < now);
    for (const job of lost.filter(({ attempt }) => attempt >= maxAttempts)) {
      job.state = 'failed';
      job.fence += 1;
    }
    const due = this.all.filter((job) => job.state === 'pending' && job.runAfter <= now);
    const next =
      lost.find(({ state }) => state === 'running') ?? due.sort((one, other) => one.runAfter - other.runAfter)[0];
    if (!next) return null;
    next.state = 'running';
    next.attempt += 1;
    next.fence += 1;
    next.leaseUntil = now + leaseMs;
    return next;
  }

  /** False where another has the job by now. */
  renew(job: ModelJob, fence: number): boolean {
    if (job.fence !== fence || job.state !== 'running') return false;
    job.leaseUntil = this.#now() + leaseMs;
    return true;
  }

  /** False, and nothing is changed, where another has the job by now. */
  settle(job: ModelJob, fence: number, outcome: ModelOutcome): boolean {
    if (job.fence !== fence || job.state !== 'running') return false;
    job.fence += 1;
    if (outcome === 'succeeded' || (outcome === 'failed' && job.attempt >= maxAttempts)) {
      job.state = outcome;
      return true;
    }
    job.state = 'pending';
    if (this.all.some((other) => other.state === 'pending' && other !== job && other.dedupeKey === job.dedupeKey)) {
      job.dedupeKey = null;
    }
    if (outcome === 'failed') {
      job.runAfter = this.#now() + backoffMs(job.attempt, () => this.#random.next());
    } else {
      job.attempt -= 1;
      job.runAfter = this.#now() + outcome.postponedMs;
    }
    return true;
  }
}
