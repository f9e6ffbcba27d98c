import type { Kysely } from 'kysely';
import { AppError, toAppError } from '../errors.ts';
import { newId } from '../ids.ts';
import type { Logger } from '../runtime/logger.ts';
import { failSpan, inSpan, linksTo } from '../runtime/spans.ts';
import { backoffMs } from './backoff.ts';
import { PermanentJobError, PostponedJob } from './job.ts';
import type { ClaimedJob, JobHandler, JobKind, Progress } from './job.ts';
import { recordJobRun } from './job-metrics.ts';
import { claimJobs, renewLease, settleJob } from './queue.ts';
import type { Lease, Outcome } from './queue.ts';
import type { WakeListener } from './wake-listener.ts';

export interface WorkerOptions<T> {
  db: Kysely<T>;
  handlers: Partial<Record<JobKind, JobHandler>>;
  concurrency: number;
  leaseMs: number;
  wake: WakeListener;
  logger: Logger;
}

/** What ends an attempt: anything at all, and the loss of its lease alone. */
interface Ends {
  signal: AbortSignal;
  lost: AbortSignal;
}

/** How long a worker waits at most before it looks again, should a wake-up be lost. */
const pollMs = 5_000;

/** Runs the jobs of one service: claim, run, settle. Lost leases are simply claimable again. */
export class Worker<T> {
  readonly #options: WorkerOptions<T>;
  readonly #lease: Lease;
  readonly #handlers: Map<string, JobHandler>;
  readonly #running = new Set<Promise<void>>();
  readonly #stop = new AbortController();
  #loop: Promise<void> = Promise.resolve();
  /** Ends the wait for the end of any job. */
  #onEnd: () => void = () => undefined;

  constructor(options: WorkerOptions<T>) {
    this.#options = options;
    this.#lease = { holder: newId(), leaseMs: options.leaseMs };
    this.#handlers = new Map(Object.entries(options.handlers));
  }

  start(): void {
    this.#loop = this.#work();
  }

  /** Claims nothing more, asks what runs to stop, and gives its leases back. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#loop;
    await Promise.all(this.#running);
  }

  async #work(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      const turn = new AbortController();
      const end = (): void => turn.abort();
      signal.addEventListener('abort', end, { once: true });
      const woken = this.#options.wake.next(pollMs, turn.signal);
      const claimed = await this.#claim();
      for (const job of claimed) this.#launch(job);
      // Of its own each time: a promise that lives on keeps all that it is raced with.
      const ended = Promise.withResolvers<void>();
      this.#onEnd = ended.resolve;
      if (this.#running.size >= this.#options.concurrency) await ended.promise;
      else if (claimed.length === 0) await Promise.race([woken, ended.promise]);
      // Gives back the timer and the listeners of a wait that is over.
      turn.abort();
      signal.removeEventListener('abort', end);
    }
  }

  async #claim(): Promise<ClaimedJob[]> {
    const free = this.#options.concurrency - this.#running.size;
    try {
      return await claimJobs(this.#options.db, [...this.#handlers.keys()], free, this.#lease);
    } catch (error) {
      this.#options.logger.warn({ err: error }, 'Jobs can not be claimed just now.');
      return [];
    }
  }

  #launch(job: ClaimedJob): void {
    const run: Promise<void> = this.#run(job)
      .catch((error: unknown) =>
        this.#options.logger.warn({ err: error, job_id: job.id }, 'A job could not be settled.'),
      )
      .finally(() => {
        this.#running.delete(run);
        this.#onEnd();
      });
    this.#running.add(run);
  }

  async #run(job: ClaimedJob): Promise<void> {
    const lost = new AbortController();
    const signal = AbortSignal.any([lost.signal, this.#stop.signal]);
    const progress: Progress = { done: 0, total: null, bytes: 0 };
    const renewal = this.#keepLease(job, progress, lost);
    try {
      const outcome = await this.#attempt(job, { signal, lost: lost.signal }, progress);
      if (!lost.signal.aborted) await settleJob(this.#options.db, job, outcome);
    } finally {
      clearInterval(renewal);
    }
  }

  /** Renews a lease every third of its time; aborts `lost` when another has it, or when it ran out unrenewed. */
  #keepLease(job: ClaimedJob, progress: Progress, lost: AbortController): NodeJS.Timeout {
    const { leaseMs } = this.#lease;
    let heldUntil = performance.now() + leaseMs;
    return setInterval(() => {
      const asked = performance.now();
      renewLease(this.#options.db, job, this.#lease, progress).then(
        (held) => {
          if (held) heldUntil = asked + leaseMs;
          else lost.abort();
        },
        (error: unknown) => {
          this.#options.logger.warn({ err: error, job_id: job.id }, 'A lease was not renewed.');
          if (performance.now() >= heldUntil) lost.abort();
        },
      );
    }, leaseMs / 3);
  }

  async #attempt(job: ClaimedJob, ends: Ends, progress: Progress): Promise<Outcome> {
    // Claimed while the process began to stop: no handler is begun that would miss the signal.
    if (ends.signal.aborted) return { state: 'released' };
    const startedAt = performance.now();
    const attributes = { 'stowage.job.id': job.id, 'stowage.job.kind': job.kind, 'stowage.job.attempt': job.attempt };
    // A trace of its own, linked to what caused the job: that may be long over, and have caused thousands.
    const settings = { root: true, links: linksTo(job.traceparent), attributes };
    const outcome = await inSpan(`job ${job.kind}`, settings, async () => {
      const ended = await this.#handle(job, ends, progress);
      if (ended.state === 'failed' || ended.state === 'pending') failSpan(ended.code);
      return ended;
    });
    recordJobRun(job.kind, outcome.state, performance.now() - startedAt);
    return outcome;
  }

  async #handle(job: ClaimedJob, { signal, lost }: Ends, progress: Progress): Promise<Outcome> {
    try {
      const handler = this.#handlers.get(job.kind);
      if (!handler) throw new PermanentJobError(`nobody here works ${job.kind}`);
      const result = await handler(job, { signal, progress: (change) => Object.assign(progress, change) });
      return { state: 'succeeded', result, progress };
    } catch (error) {
      // Cancelled, or another worker has it: what it failed with says nothing, and nothing is written.
      return lost.aborted ? { state: 'released' } : this.#failure(job, error);
    }
  }

  #failure(job: ClaimedJob, error: unknown): Outcome {
    if (this.#stop.signal.aborted) return { state: 'released' };
    if (error instanceof PostponedJob) return { state: 'released', delayMs: error.delayMs };
    const shown = error instanceof PermanentJobError ? new AppError('unprocessable', error.message) : toAppError(error);
    const final = error instanceof PermanentJobError || job.attempt >= job.maxAttempts;
    this.#options.logger.warn(
      { err: error, job_id: job.id, kind: job.kind, attempt: job.attempt, final },
      'A job failed.',
    );
    const cause = { code: shown.code, detail: shown.detail };
    return final ? { state: 'failed', ...cause } : { state: 'pending', ...cause, delayMs: backoffMs(job.attempt) };
  }
}
