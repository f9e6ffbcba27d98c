import { durationHistogram } from '@stowage/common/runtime/metrics';
import type { CallRecorder } from './stores/wrappers/measure.ts';

const slowest = [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120];

/** Counts and times the calls of stores, by backend, operation and outcome. */
export function storeCallRecorder(): CallRecorder {
  const durations = durationHistogram(
    'stowage_backend_operation_duration_seconds',
    'Calls to storage backends; of a read the time to its first byte.',
    slowest,
  );
  return ({ backendId: backend, operation, outcome, durationMs }) =>
    durations.record(durationMs / 1_000, { backend, operation, outcome });
}
