import { propagation, context as otelContext } from '@opentelemetry/api';
import { sql } from 'kysely';
import type { QueryExecutorProvider, RawBuilder } from 'kysely';
import type { JsonObject } from './job.ts';

/**
 * Writes an event within the transaction of the change that it tells of, so that neither exists without the other.
 * Its id becomes the message id, so that a consumer can tell a second delivery. To be called while the row that changed
 * is locked, that is after the change: the order of the events of one resource is the order in which they are written.
 */
export async function writeOutbox(db: QueryExecutorProvider, subject: string, data: JsonObject): Promise<void> {
  await outboxInsert(subject, data).execute(db);
}

/** What writeOutbox executes, for a statement that makes the change too; `from` as in `from changed`, a row an event. */
export function outboxInsert(
  subject: string,
  data: JsonObject,
  from: RawBuilder<unknown> = sql``,
): RawBuilder<unknown> {
  return sql`
    insert into jobs.outbox (subject, data, traceparent)
    select ${subject}::text, ${JSON.stringify(data)}::jsonb, ${currentTraceparent()}::text ${from}`;
}

/**
 * The events of changes of state of jobs, as a part of the statement that makes them: `changed` names what that gives
 * back, with the job's `id`, `kind`, `state`, `attempt` and `traceparent` as they are after the change.
 */
export function jobEventsInsert(changed: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`
    insert into jobs.outbox (subject, data, traceparent)
    select 'stowage.jobs.' || kind || '.' || state,
      jsonb_build_object('id', id, 'kind', kind, 'state', state, 'attempt', attempt), traceparent
    from ${changed}`;
}

/** The W3C traceparent of what is running now, or null. */
export function currentTraceparent(): string | null {
  const carrier: Record<string, string> = {};
  propagation.inject(otelContext.active(), carrier);
  return carrier['traceparent'] ?? null;
}
