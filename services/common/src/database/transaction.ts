import type { Kysely, Transaction } from 'kysely';
import { isRetryable, toDatabaseError } from './database-error.ts';

const attempts = 4;

/**
 * Runs `work` in one transaction, again when PostgreSQL asks for it (serialization failure, deadlock).
 * Inside: the database and nothing else. Errors of PostgreSQL come out as AppError (see database-error.ts).
 */
export async function inTransaction<T, R>(db: Kysely<T>, work: (trx: Transaction<T>) => Promise<R>): Promise<R> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await db.transaction().execute(work);
    } catch (error) {
      if (attempt < attempts && isRetryable(error)) continue;
      throw toDatabaseError(error);
    }
  }
}

/** Runs one query outside a transaction, with the same errors. */
export async function query<R>(run: () => Promise<R>): Promise<R> {
  try {
    return await run();
  } catch (error) {
    throw toDatabaseError(error);
  }
}
