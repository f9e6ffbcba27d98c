import pg from 'pg';
import { AppError, unavailable } from '../errors.ts';

/** Asks its transaction to start over, for example when a free name was taken in between. */
export class RetryTransaction extends Error {
  override readonly name = 'RetryTransaction';
}

export function isRetryable(error: unknown): boolean {
  if (error instanceof RetryTransaction) return true;
  return error instanceof pg.DatabaseError && (error.code === '40001' || error.code === '40P01');
}

/** The name of the unique or foreign-key constraint that refused a row, or null. */
export function violatedConstraint(error: unknown): string | null {
  if (!(error instanceof pg.DatabaseError)) return null;
  return error.code === '23505' || error.code === '23503' ? (error.constraint ?? null) : null;
}

/** Turns "the database is not there (in time)" into `unavailable`; leaves all else as it is. */
export function toDatabaseError(error: unknown): unknown {
  if (error instanceof AppError) return error;
  if (error instanceof RetryTransaction) return unavailable('Too many changes at the same place at once.', error, 1);
  if (isFull(error)) return unavailable('The disk of the database is full.', error);
  return isOutage(error) ? unavailable('The database can not be reached just now.', error) : error;
}

function isFull(error: unknown): boolean {
  return error instanceof pg.DatabaseError && error.code === '53100';
}

// 58: the server's own disk fails it.
const outageClasses = ['08', '57', '53', '58'];
const outageMessages =
  /timeout exceeded when trying to connect|Query read timeout|Connection terminated|connection has been discarded|not queryable/i;

function isOutage(error: unknown): boolean {
  if (error instanceof pg.DatabaseError) {
    return error.code === '55P03' || outageClasses.some((prefix) => error.code?.startsWith(prefix));
  }
  if (!(error instanceof Error)) return false;
  if ('code' in error && typeof error.code === 'string' && /^E(AI_)?[A-Z]+$/.test(error.code)) return true;
  return outageMessages.test(error.message);
}
