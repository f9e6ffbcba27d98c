import { unavailable } from '@stowage/common/errors';
import { executeBlob } from '../reconcile/execute-blob.ts';
import type { BlobFacts, View } from '../reconcile/executor.ts';
import type { ModelJob, ModelJobs, ModelOutcome } from './model-jobs.ts';
import { deleteTimeoutMs, SimulatedExecutor } from './simulated-executor.ts';
import type { World } from './simulated-executor.ts';
import type { SimulatedProcess } from './simulated-time.ts';

/** What workers share. */
export interface WorkerWorld extends World {
  jobs: ModelJobs;
  /** The full reconcile that may run now. */
  slot: { job: ModelJob; fence: number } | null;
  /** Policies and backends as they are now. */
  view(): Pick<View, 'world' | 'toPlan'>;
  /** What must never happen, thrown by a check in the middle of a job. */
  broken: Error | null;
}

interface Run {
  job: ModelJob;
  fence: number;
  lost: AbortController;
}

const atOnce = 2;
const slotRetryMs = 1_000;
const viewMaxAgeMs = 2_000;

/** One placement process: claims jobs and works them with the real executor of plans. Mirrors worker.ts and the handlers. */
export class SimulatedWorker implements SimulatedProcess {
  readonly name: string;
  frozenUntil = 0;
  dead = false;
  readonly #world: WorkerWorld;
  readonly #runs = new Set<Run>();

  constructor(name: string, world: WorkerWorld) {
    this.name = name;
    this.#world = world;
  }

  get isRunning(): boolean {
    return !this.dead && this.frozenUntil <= this.#world.time.now;
  }

  claim(): void {
    if (!this.isRunning || this.#runs.size >= atOnce) return;
    const job = this.#world.jobs.claim();
    if (!job) return;
    const run = { job, fence: job.fence, lost: new AbortController() };
    this.#runs.add(run);
    void this.#work(run);
  }

  /** While it runs it renews its leases. */
  renew(): void {
    if (this.isRunning) for (const { job, fence } of this.#runs) this.#world.jobs.renew(job, fence);
  }

  /** It goes on after it stood still, and learns some time later which leases it lost. */
  thaw(): void {
    this.frozenUntil = 0;
    for (const run of this.#runs) {
      void this.#world.time.turn(this).then(() => {
        if (!this.#world.jobs.renew(run.job, run.fence)) run.lost.abort(unavailable('The lease is lost.'));
      });
    }
  }

  async #work(run: Run): Promise<void> {
    const outcome = await this.#attempt(run).catch((error: unknown): ModelOutcome => {
      if (this.#world.broken === null && error instanceof TypeError) this.#world.broken = error;
      return 'failed';
    });
    await this.#world.time.turn(this);
    if (!run.lost.signal.aborted) this.#world.jobs.settle(run.job, run.fence, outcome);
    this.#runs.delete(run);
  }

  async #attempt({ job, fence, lost }: Run): Promise<ModelOutcome> {
    const executor = new SimulatedExecutor(this.#world, this, lost.signal);
    switch (job.kind) {
      case 'place_blob': {
        const blob = await executor.reload(job.blobId);
        if (blob) await this.#place(executor, blob, lost.signal, true);
        return 'succeeded';
      }
      case 'verify_blob':
        return this.#verify(executor, job);
      case 'remove_blob':
        return this.#remove(executor, job);
      case 'full_reconcile':
        return this.#reconcile(executor, job, fence, lost.signal);
    }
  }

  async #place(executor: SimulatedExecutor, blob: BlobFacts, signal: AbortSignal, strict: boolean): Promise<boolean> {
    const { time } = this.#world;
    let seen = { view: this.#world.view(), at: time.now };
    const view = async (): Promise<Pick<View, 'world' | 'toPlan'>> => {
      if (time.now - seen.at >= viewMaxAgeMs) seen = { view: this.#world.view(), at: time.now };
      return seen.view;
    };
    const outcome = await executeBlob({ executor, view, signal, now: () => time.now }, blob);
    if (strict && outcome.failures.length > 0) throw unavailable('A backend failed.');
    return outcome.failures.length === 0;
  }

  async #verify(executor: SimulatedExecutor, { blobId, backendId }: ModelJob): Promise<ModelOutcome> {
    const blob = { id: blobId, key: '', size: 1n, sha256: Buffer.alloc(0), fileClasses: [], replicas: [] };
    const begun = this.#world.time.now;
    const state = await executor.verify(blob, backendId);
    const readAgoMs = this.#world.time.now - begun;
    await executor.note(blob, { kind: 'settled', backendId, state, readAgoMs });
    if (state !== 'available') this.#world.jobs.enqueue('place_blob', { blobId });
    return 'succeeded';
  }

  async #remove(executor: SimulatedExecutor, { blobId }: ModelJob): Promise<ModelOutcome> {
    const { catalog } = this.#world;
    const blob = { id: blobId, key: '', size: 1n, sha256: Buffer.alloc(0), fileClasses: [], replicas: [] };
    const backendIds = await executor.call(10_000, async () => catalog.claimBlobRemoval(blobId));
    let failed = false;
    for (const backendId of backendIds) {
      try {
        await executor.remove(blob, backendId, deleteTimeoutMs);
        await executor.note(blob, { kind: 'removed', backendId });
      } catch {
        failed = true;
      }
    }
    return failed ? 'failed' : 'succeeded';
  }

  async #reconcile(
    executor: SimulatedExecutor,
    job: ModelJob,
    fence: number,
    signal: AbortSignal,
  ): Promise<ModelOutcome> {
    const { slot, time } = this.#world;
    const isTaken = slot && slot.job !== job && slot.job.state === 'running' && slot.job.leaseUntil > time.now;
    if (isTaken) return { postponedMs: slotRetryMs };
    this.#world.slot = { job, fence };
    let clean = true;
    for (const damaged of [true, false]) {
      const page = await executor.call(30_000, async () =>
        this.#world.catalog.listBlobs(damaged).map((blob) => executor.facts(blob)),
      );
      for (const blob of page) clean = (await this.#place(executor, blob, signal, false)) && clean;
      if (this.#world.slot?.job !== job || this.#world.slot.fence !== fence) return { postponedMs: slotRetryMs };
    }
    if (!clean) this.#world.jobs.enqueue('full_reconcile', {}, time.now + 60_000);
    return 'succeeded';
  }
}
