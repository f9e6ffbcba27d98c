import { trace } from '@opentelemetry/api';
import { pino } from 'pino';
import type { DestinationStream, Logger } from 'pino';

export type { Logger } from 'pino';

export const logLevels = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const;
export type LogLevel = (typeof logLevels)[number];

const secretFields = [
  'authorization',
  'password',
  'access_token',
  'token',
  'secret',
  'password_hash',
  'access_key_id',
  'secret_access_key',
  'session_token',
];

/** JSON lines on stdout with the service's name and the ids of the trace that is running; secrets are redacted. */
export function createLogger(service: string, level: LogLevel, destination?: DestinationStream): Logger {
  const options = {
    level,
    base: { service },
    messageKey: 'message',
    timestamp: () => `,"time":"${new Date().toISOString()}"`,
    formatters: { level: (label: string) => ({ level: label }) },
    serializers: { err: errorWithoutRows },
    redact: {
      paths: secretFields.flatMap((field) => [field, `*.${field}`, `*.*.${field}`]),
      censor: '[redacted]',
    },
    mixin: () => {
      const span = trace.getActiveSpan()?.spanContext();
      return span ? { trace_id: span.traceId, span_id: span.spanId } : {};
    },
  };
  return destination ? pino(options, destination) : pino(options);
}

const quotingFields = new Set(['detail', 'where', 'internalQuery']);

/** An error as pino shows one, without what PostgreSQL quotes of rows and queries: a password's hash may stand there. */
function errorWithoutRows(error: Error): object {
  const shown = Object.entries(pino.stdSerializers.err(error));
  return Object.fromEntries(shown.filter(([field]) => !quotingFields.has(field)));
}
