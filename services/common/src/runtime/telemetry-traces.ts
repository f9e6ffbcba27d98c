import { FastifyOtelInstrumentation } from '@fastify/otel';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { GrpcInstrumentation } from '@opentelemetry/instrumentation-grpc';
import { PgInstrumentation } from '@opentelemetry/instrumentation-pg';
import { UndiciInstrumentation } from '@opentelemetry/instrumentation-undici';
import { NodeSDK } from '@opentelemetry/sdk-node';
import { BatchSpanProcessor } from '@opentelemetry/sdk-trace';
import { describeLifecycle, describeRequest } from './request-span.ts';

/** With all retries: a collector that is down must not hold up the end of the process. */
const exportTimeoutMs = 3_000;

/** Loaded only where a collector is named: it costs about 90 MB and 0.7 s of CPU. */
export function startTraces(serviceName: string): { stop(): Promise<void> } {
  const sdk = new NodeSDK({
    serviceName: `stowage-${serviceName}`,
    spanProcessors: [new BatchSpanProcessor({ exporter: new OTLPTraceExporter({ timeoutMillis: exportTimeoutMs }) })],
    // Those of telemetry-metrics.ts; unset, the SDK would send some to a collector on this host.
    metricReaders: [],
    instrumentations: [
      new GrpcInstrumentation(),
      new PgInstrumentation({ requireParentSpan: true }),
      new UndiciInstrumentation(),
      new FastifyOtelInstrumentation({
        registerOnInitialization: true,
        // A span for each of the dozen hooks says nothing. That of the handler is needed: it brings back the context
        // that is lost while a body arrives.
        instrumentHooks: false,
        requestHook: describeRequest,
        lifecycleHook: describeLifecycle,
      }),
    ],
  });
  sdk.start();
  return { stop: () => sdk.shutdown() };
}
