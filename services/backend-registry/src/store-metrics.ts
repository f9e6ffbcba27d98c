import { metrics } from '@opentelemetry/api';
import type { CallRecorder } from './stores/wrappers/measure.ts';
import type { BackendType } from './tables.ts';

/** Counts and times what backends over the network were asked, by type, operation and outcome. */
export function storeMetrics(): (type: BackendType) => CallRecorder {
  const duration = metrics.getMeter('stowage').createHistogram('stowage.backend.operation.duration', {
    description: 'How long a backend took to answer, or to send its first byte.',
    unit: 's',
  });
  return (type) => (operation, outcome, durationMs) => {
    duration.record(durationMs / 1_000, { 'stowage.backend.type': type, operation, outcome });
  };
}
