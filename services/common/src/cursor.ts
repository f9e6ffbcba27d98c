import { fromBase64Json, toBase64Json } from './base64-json.ts';
import { AppError } from './errors.ts';

/** An opaque cursor around the keyset values of the last row of a page. */
export function encodeCursor(values: readonly string[]): string {
  return toBase64Json(values);
}

/** Reads a cursor of `length` values; null for the empty cursor. Throws `validation_failed` for a made-up one. */
export function decodeCursor(cursor: string, length: number): string[] | null {
  if (cursor === '') return null;
  const values = fromBase64Json(cursor);
  if (!Array.isArray(values) || values.length !== length || !values.every(isValue)) {
    const errors = [{ pointer: '?cursor', detail: 'is not a cursor that this list gave' }];
    throw new AppError('validation_failed', 'The cursor is not one that this list gave.', { members: { errors } });
  }
  return values;
}

/** PostgreSQL takes no NUL in a text. */
function isValue(value: unknown): boolean {
  return typeof value === 'string' && !value.includes('\u0000');
}
