import { sql } from 'kysely';
import type { QueryExecutorProvider } from 'kysely';
import { newId } from '../ids.ts';
import { currentTraceparent } from './enqueue.ts';
import type { JsonObject } from './job.ts';

/**
 * Writes an event within the transaction of the change that it tells of, so that neither exists without the other.
 * Its id becomes the message id, so that a consumer can tell a second delivery.
 */
export async function writeOutbox(db: QueryExecutorProvider, subject: string, data: JsonObject): Promise<void> {
  await sql`
    insert into jobs.outbox (id, subject, data, traceparent)
    values (${newId()}, ${subject}, ${JSON.stringify(data)}, ${currentTraceparent()})`.execute(db);
}
