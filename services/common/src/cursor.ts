import { AppError } from './errors.ts';

/** An opaque cursor around the keyset values of the last row of a page. */
export function encodeCursor(values: readonly string[]): string {
  return Buffer.from(JSON.stringify(values)).toString('base64url');
}

/** Reads a cursor of `length` values; null for the empty cursor. Throws `validation_failed` for a made-up one. */
export function decodeCursor(cursor: string, length: number): string[] | null {
  if (cursor === '') return null;
  const values = parse(cursor);
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

function parse(cursor: string): unknown {
  try {
    return JSON.parse(Buffer.from(cursor, 'base64url').toString());
  } catch {
    return null;
  }
}
