/** The states of a job; succeeded, failed and cancelled are final (but a failed one can be retried by hand). */
export const jobStates = ['pending', 'running', 'succeeded', 'failed', 'cancelled'] as const;
export type JobState = (typeof jobStates)[number];

/** Who works which kind. A service claims the kinds it owns only. */
export const jobKinds = {
  purge_recycle_bin: 'catalog',
  expire_uploads: 'upload',
  health_check: 'placement',
  remove_blob: 'placement',
  verify_blob: 'placement',
  place_blob: 'placement',
  full_reconcile: 'placement',
  scrub: 'placement',
  sweep: 'placement',
  prune_history: 'placement',
  metadata_export: 'export',
} as const;
export type JobKind = keyof typeof jobKinds;

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

/** A job as a worker holds it. */
export interface ClaimedJob {
  id: string;
  kind: string;
  params: JsonObject;
  attempt: number;
  maxAttempts: number;
  /** Rises with every claim; a write that carries an old one changes nothing. */
  fence: string;
  traceparent: string | null;
}

export interface Progress {
  done: number;
  total: number | null;
  bytes: number;
}

/** Does one job. Safe to run twice. Throws PermanentJobError for what no retry can mend. */
export type JobHandler = (job: ClaimedJob, run: JobRun) => Promise<JsonObject>;

/** What a running job has of its worker. */
export interface JobRun {
  /** Aborted when the lease is lost or the process stops. */
  signal: AbortSignal;
  /** Notes progress at the next renewal of the lease. */
  progress(progress: Partial<Progress>): void;
}

/** Fails its job at once. */
export class PermanentJobError extends Error {
  override readonly name = 'PermanentJobError';
}

/** Puts its job off by `delayMs` without counting the attempt: it is not its turn yet. */
export class PostponedJob extends Error {
  override readonly name = 'PostponedJob';
  readonly delayMs: number;

  constructor(delayMs: number) {
    super(`postponed by ${delayMs} ms`);
    this.delayMs = delayMs;
  }
}
