import { Type } from 'typebox';
import type { TSchema } from 'typebox';

/** A UUIDv7, lower case. */
export const Id = Type.String({
  pattern: '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$',
  description: 'UUIDv7, lower case.',
  examples: ['0193fa2c-7a3e-7cc1-9f0e-0d5f1a2b3c4d'],
});

/** A directory's id, or the alias of the root. */
export const DirectoryId = Type.String({
  pattern: '^(root|[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})$',
  description: 'A directory’s id, or `root`.',
  examples: ['root'],
});

export const Time = Type.String({ format: 'date-time', description: 'RFC 3339, UTC, milliseconds.' });

/** Null rather than absent: a field with no value is never left out. */
export function Nullable<T extends TSchema>(schema: T) {
  return Type.Union([schema, Type.Null()]);
}

export const Name = Type.String({
  minLength: 1,
  maxLength: 1024,
  description:
    '1–255 bytes of UTF-8 after NFC; no `/`, control characters or bidirectional overrides, not `.` or `..`, no white space at either end.',
  examples: ['report.pdf'],
});

export const OnConflict = Type.Union([Type.Literal('fail'), Type.Literal('rename')], {
  default: 'fail',
  description: 'When the name is taken: refuse, or take the next free `name (2).ext`.',
});

export const FileClass = Type.String({ pattern: '^[a-z][a-z0-9_-]{0,62}$', examples: ['image'] });

export const Sha256 = Type.String({ pattern: '^[0-9a-f]{64}$', description: 'SHA-256, hex, lower case.' });

/** `?limit=` and `?cursor=` of every list. */
export const pageFields = {
  limit: Type.Integer({ minimum: 1, maximum: 1000, default: 100 }),
  cursor: Type.String({ maxLength: 2048, default: '', description: 'The `next_cursor` of the page before.' }),
};

/** `{ items, next_cursor }`. */
export function Page<T extends TSchema>(items: T, title: string) {
  return Type.Object({ items: Type.Array(items), next_cursor: Nullable(Type.String()) }, { title });
}

/** A request object: unknown fields are refused. */
export function Closed<T extends Record<string, TSchema>>(fields: T) {
  return Type.Object(fields, { additionalProperties: false });
}

export const NoContent = Type.Null({ description: 'Done.' });
