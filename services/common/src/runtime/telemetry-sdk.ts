import { FastifyOtelInstrumentation } from '@fastify/otel';
import { PrometheusExporter } from '@opentelemetry/exporter-prometheus';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { GrpcInstrumentation } from '@opentelemetry/instrumentation-grpc';
import { PgInstrumentation } from '@opentelemetry/instrumentation-pg';
import { UndiciInstrumentation } from '@opentelemetry/instrumentation-undici';
import { NodeSDK } from '@opentelemetry/sdk-node';
import { BatchSpanProcessor } from '@opentelemetry/sdk-trace';
import type { Telemetry } from './telemetry.ts';

/** With all retries: a collector that is down must not hold up the end of the process. */
const exportTimeoutMs = 3_000;

/** Loaded only where a collector is named: it costs about 90 MB and 0.7 s of CPU. */
export function startSdk(serviceName: string): Telemetry {
  const prometheus = new PrometheusExporter({ preventServerStart: true });
  const sdk = new NodeSDK({
    serviceName: `stowage-${serviceName}`,
    spanProcessors: [new BatchSpanProcessor({ exporter: new OTLPTraceExporter({ timeoutMillis: exportTimeoutMs }) })],
    metricReaders: [prometheus],
    instrumentations: [
      new GrpcInstrumentation(),
      new PgInstrumentation({ requireParentSpan: true }),
      new UndiciInstrumentation(),
      new FastifyOtelInstrumentation({
        registerOnInitialization: true,
        // A query may hold names: a cursor ends with the last one of its page.
        requestHook: (span, request) => span.setAttribute('url.path', request.url.split('?', 1)[0] ?? ''),
      }),
    ],
  });
  sdk.start();
  return {
    metrics: (request, response) => prometheus.getMetricsRequestHandler(request, response),
    stop: () => sdk.shutdown(),
  };
}
