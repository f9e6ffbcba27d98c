import { durationHistogram } from '../runtime/metrics.ts';
import type { Outcome } from './queue.ts';

const slowest = [0.01, 0.05, 0.25, 1, 5, 15, 60, 300, 1_800, 7_200];

const durations = durationHistogram(
  'stowage_job_run_duration_seconds',
  'Runs of jobs, by how they ended: succeeded, failed, retried, or released for another time.',
  slowest,
);

/** Counts and times one run of a job. */
export function recordJobRun(kind: string, state: Outcome['state'], durationMs: number): void {
  durations.record(durationMs / 1_000, { kind, outcome: state === 'pending' ? 'retried' : state });
}
