import { metrics } from '@opentelemetry/api';
import type { CallRecorder } from './stores/wrappers/measure.ts';

/** Counts and times the calls of stores over the network, by call and outcome. */
export function storeCallRecorder(): CallRecorder {
  const durations = metrics.getMeter('stowage').createHistogram('stowage.store.call.duration', {
    unit: 's',
    description: 'Calls to storage backends over the network; of a read the time to its first byte.',
  });
  return (call, outcome, durationMs) => durations.record(durationMs / 1_000, { call, outcome });
}
