import { context, isSpanContextValid, propagation, ROOT_CONTEXT, SpanStatusCode, trace } from '@opentelemetry/api';
import type { Attributes, Link, SpanKind } from '@opentelemetry/api';
import { isId } from '../ids.ts';

const tracer = trace.getTracer('stowage');

/** What the field `id` of a message names, by the service that takes it. */
const idOf: Readonly<Record<string, string>> = {
  upload: 'upload',
  backend_registry: 'backend',
  placement: 'job',
  catalog: 'node',
  export: 'export',
};

/**
 * Tells on the span that runs which ids a call between services is about, such as `stowage.blob.id`. Nothing else of the
 * message: names stand there too.
 */
export function noteIds(message: { $typeName: string }): void {
  const span = trace.getActiveSpan();
  if (!span?.isRecording()) return;
  for (const [field, value] of Object.entries(message)) {
    if (typeof value !== 'string') continue;
    const named = /^(\w+)Id$/.exec(field)?.[1] ?? (field === 'id' ? idOf[message.$typeName.split('.')[1] ?? ''] : null);
    if (named && isId(value)) span.setAttribute(`stowage.${snakeCase(named)}.id`, value);
    if (field === 'key' && value.startsWith('blobs/')) span.setAttribute('stowage.blob.id', value.slice(-36));
  }
}

function snakeCase(name: string): string {
  return name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** A link to what a kept traceparent names; none where there is none. */
export function linksTo(traceparent: string | null): Link[] {
  if (traceparent === null) return [];
  const cause = trace.getSpanContext(propagation.extract(ROOT_CONTEXT, { traceparent }));
  return cause && isSpanContextValid(cause) ? [{ context: cause }] : [];
}

/** Links the span that runs to the trace that a kept traceparent names, unless it belongs to it. */
export function linkTo(traceparent: string | null): void {
  const span = trace.getActiveSpan();
  if (!span?.isRecording()) return;
  const { traceId } = span.spanContext();
  span.addLinks(linksTo(traceparent).filter((link) => link.context.traceId !== traceId));
}

export interface SpanSettings {
  attributes?: Attributes;
  kind?: SpanKind;
  links?: Link[];
  /** A trace of its own, whatever runs around it. */
  root?: boolean;
}

/** Runs `work` within a span; one that throws is marked as failed, without the message, in which names may stand. */
export async function inSpan<R>(name: string, settings: SpanSettings, work: () => Promise<R>): Promise<R> {
  return tracer.startActiveSpan(name, settings, context.active(), async (span) => {
    try {
      return await work();
    } catch (error) {
      span.setStatus({ code: SpanStatusCode.ERROR });
      throw error;
    } finally {
      span.end();
    }
  });
}

/** Marks the span that runs as failed, with a code of ours at most. */
export function failSpan(code?: string): void {
  const span = trace.getActiveSpan();
  span?.setStatus({ code: SpanStatusCode.ERROR });
  if (code !== undefined) span?.setAttribute('stowage.error.code', code);
}
