import { sql } from 'kysely';
import type { QueryExecutorProvider, RawBuilder } from 'kysely';
import { newId } from '../ids.ts';
import { currentTraceparent } from './enqueue.ts';
import type { JsonObject } from './job.ts';

/**
 * Writes an event within the transaction of the change that it tells of, so that neither exists without the other.
 * Its id becomes the message id, so that a consumer can tell a second delivery.
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
    insert into jobs.outbox (id, subject, data, traceparent)
    select ${newId()}::uuid, ${subject}::text, ${JSON.stringify(data)}::jsonb, ${currentTraceparent()}::text ${from}`;
}
