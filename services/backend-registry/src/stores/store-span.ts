import { SpanKind, SpanStatusCode, trace } from '@opentelemetry/api';
import type { Span } from '@opentelemetry/api';

/** Where a call over HTTP goes. */
export interface CalledServer {
  hostname: string;
  port?: number | string | undefined;
}

/**
 * A span for a store's own call over HTTP, up to the head of its answer. By hand: what instruments `node:http` would tell
 * addresses with prefixes and cursors in them, and send our trace ids to strangers.
 */
export async function inCallSpan<R>(
  method: string,
  { hostname, port }: CalledServer,
  call: () => Promise<R>,
  statusOf: (answer: R) => number | undefined,
): Promise<R> {
  const attributes = {
    'http.request.method': method,
    'server.address': hostname,
    ...(port ? { 'server.port': Number(port) } : {}),
  };
  const span = trace.getTracer('stowage').startSpan(method, { kind: SpanKind.CLIENT, attributes });
  try {
    const answer = await call();
    noteStatus(span, statusOf(answer));
    return answer;
  } catch (error) {
    span.setStatus({ code: SpanStatusCode.ERROR });
    throw error;
  } finally {
    span.end();
  }
}

function noteStatus(span: Span, status: number | undefined): void {
  if (status === undefined) return;
  span.setAttribute('http.response.status_code', status);
  if (status >= 400) span.setStatus({ code: SpanStatusCode.ERROR });
}
