import { register } from 'node:module';
import type { Environment } from './settings.ts';
import type { MetricsHandler } from './management-server.ts';

/** OpenTelemetry of this process. */
export interface Telemetry {
  /** Serves Prometheus; null where telemetry is off. */
  metrics: MetricsHandler | null;
  /** Sends what is still held back. */
  stop(): Promise<void>;
}

const off: Telemetry = { metrics: null, stop: async () => undefined };

/**
 * Starts traces and metrics where OTEL_EXPORTER_OTLP_ENDPOINT (or …_TRACES_ENDPOINT) names a collector, and metrics alone
 * where STOWAGE_METRICS is true; costs nothing elsewhere.
 * Has to be awaited before anything else is imported: under ESM, gRPC and PostgreSQL are traced only when the hook is
 * registered before they load. That is why each main imports its service dynamically.
 */
export async function startTelemetry(serviceName: string, environment: Environment): Promise<Telemetry> {
  if (environment['OTEL_SDK_DISABLED'] === 'true') return off;
  const collector = environment['OTEL_EXPORTER_OTLP_ENDPOINT'] || environment['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT'];
  if (!collector && environment['STOWAGE_METRICS'] !== 'true') return off;
  if (collector) register('@opentelemetry/instrumentation/hook.mjs', import.meta.url);
  const { startMetrics } = await import('./telemetry-metrics.ts');
  const metrics = startMetrics(serviceName);
  if (!collector) return metrics;
  const { startTraces } = await import('./telemetry-traces.ts');
  const traces = startTraces(serviceName);
  return {
    metrics: metrics.metrics,
    stop: async () => {
      await Promise.all([traces.stop(), metrics.stop()]);
    },
  };
}
