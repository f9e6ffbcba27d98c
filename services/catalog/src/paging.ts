import { validationError } from '@stowage/common/errors';
import type { AppError } from '@stowage/common/errors';

/** Reads a time as cursors carry it; null for anything else. */
export function timeOf(text: string): Date | null {
  const time = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/.test(text) ? new Date(text) : null;
  return time && !Number.isNaN(time.getTime()) ? time : null;
}

export function cursorFault(): AppError {
  return validationError([{ pointer: '?cursor', detail: 'is not a cursor that this list gave in this order' }]);
}

/** The limit of a page, 1 to 1,000. Throws `validation_failed`. */
export function requireLimit(limit: number): number {
  if (limit >= 1 && limit <= 1_000) return limit;
  throw validationError([{ pointer: '?limit', detail: 'must be from 1 to 1000' }]);
}
