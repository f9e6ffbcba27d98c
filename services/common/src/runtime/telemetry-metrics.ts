import { metrics } from '@opentelemetry/api';
import { PrometheusExporter } from '@opentelemetry/exporter-prometheus';
import { AggregationType, MeterProvider } from '@opentelemetry/sdk-metrics';
import type { ViewOptions } from '@opentelemetry/sdk-metrics';
import { observeProcess } from './process-metrics.ts';
import type { Telemetry } from './telemetry.ts';

/** What instrumentations measure beside: the names of deploy/metrics.md are all that is promised. */
const dropped: ViewOptions[] = ['http.client.*', 'db.client.*', 'rpc.*'].map((instrumentName) => ({
  instrumentName,
  aggregation: { type: AggregationType.DROP },
}));

/** One for each state of each class that has a policy, of which there may be 1,000: what is beyond a limit is told under no name. */
const many: ViewOptions = { instrumentName: 'stowage_placement_blobs', aggregationCardinalityLimit: 5_000 };

/** Metrics for whoever scrapes the management port. Takes about 10 MB; instruments that were made before report nothing. */
export function startMetrics(serviceName: string): Telemetry {
  const exporter = new PrometheusExporter({
    preventServerStart: true,
    withoutScopeInfo: true,
    withoutTargetInfo: true,
  });
  const provider = new MeterProvider({ readers: [exporter], views: [...dropped, many] });
  metrics.setGlobalMeterProvider(provider);
  const observed = observeProcess(serviceName);
  return {
    metrics: (request, response) => exporter.getMetricsRequestHandler(request, response),
    stop: async () => {
      observed.stop();
      await provider.shutdown();
    },
  };
}
