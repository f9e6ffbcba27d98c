import { fromBinary, toBinary } from '@bufbuild/protobuf';
import { create } from '@bufbuild/protobuf';
import type { DescMessage, MessageInitShape, MessageShape } from '@bufbuild/protobuf';
import { sql } from 'kysely';
import type { QueryExecutorProvider, Transaction } from 'kysely';
import { AppError } from '../errors.ts';
import type { CallContext, IdempotencyKey } from '../rpc/context.ts';

/** How long a key answers with its first result. */
export const idempotencyKeyTtlHours = 24;

/**
 * Runs `change` at most once for the context's idempotency key, in the transaction of the change: the same key again
 * gets the first answer, with another body `idempotency_key_reused`. Two at the same moment: the second waits for the
 * first. A change that fails keeps no key. Without a key it just runs.
 */
export async function idempotent<T, O extends DescMessage>(
  trx: Transaction<T>,
  context: CallContext,
  output: O,
  change: () => Promise<MessageInitShape<O>>,
): Promise<MessageShape<O>> {
  const key = context.idempotency;
  const userId = context.actor?.userId;
  if (!key || !userId) return create(output, await change());
  const first = await reserve(trx, userId, key.route, key.key, key.fingerprint);
  if (first) return sameRequest(first, key, output);
  const response = create(output, await change());
  await sql`
    update jobs.idempotency_keys set response = ${Buffer.from(toBinary(output, response))}
    where user_id = ${userId} and route = ${key.route} and key = ${key.key}`.execute(trx);
  return response;
}

/**
 * The answer that the context's idempotency key got before, or null: for a change that ends in a transaction but can't
 * begin in it. Throws `idempotency_key_reused` as idempotent() does.
 */
export async function answeredBefore<O extends DescMessage>(
  db: QueryExecutorProvider,
  context: CallContext,
  output: O,
): Promise<MessageShape<O> | null> {
  const key = context.idempotency;
  const userId = context.actor?.userId;
  if (!key || !userId) return null;
  const { rows } = await sql<{ fingerprint: string; response: Buffer }>`
    select fingerprint, response from jobs.idempotency_keys
    where user_id = ${userId} and route = ${key.route} and key = ${key.key} and response is not null
      and created_at >= now() - ${idempotencyKeyTtlHours} * interval '1 hour'`.execute(db);
  return rows[0] ? sameRequest(rows[0], key, output) : null;
}

function sameRequest<O extends DescMessage>(
  first: { fingerprint: string; response: Buffer },
  key: IdempotencyKey,
  output: O,
): MessageShape<O> {
  if (![key.fingerprint, ...(key.earlierFingerprints ?? [])].includes(first.fingerprint)) {
    throw new AppError('idempotency_key_reused', 'This idempotency key was used for a request with another body.');
  }
  return fromBinary(output, first.response);
}

async function reserve<T>(
  trx: Transaction<T>,
  userId: string,
  route: string,
  key: string,
  fingerprint: string,
): Promise<{ fingerprint: string; response: Buffer } | null> {
  await sql`
    delete from jobs.idempotency_keys where user_id = ${userId} and route = ${route} and key = ${key}
      and created_at < now() - ${idempotencyKeyTtlHours} * interval '1 hour'`.execute(trx);
  const inserted = await sql`
    insert into jobs.idempotency_keys (user_id, route, key, fingerprint) values (${userId}, ${route}, ${key}, ${fingerprint})
    on conflict do nothing returning key`.execute(trx);
  if (inserted.rows.length > 0) return null;
  const { rows } = await sql<{ fingerprint: string; response: Buffer | null }>`
    select fingerprint, response from jobs.idempotency_keys
    where user_id = ${userId} and route = ${route} and key = ${key}`.execute(trx);
  const row = rows[0];
  if (!row) throw new AppError('unavailable', 'Try again.', { members: { retry_after: 1 } });
  return { fingerprint: row.fingerprint, response: row.response ?? Buffer.alloc(0) };
}
