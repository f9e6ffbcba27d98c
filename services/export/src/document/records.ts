import { Type } from 'typebox';
import type { Static, TObject, TSchema } from 'typebox';

/**
 * The records of a document, format version 1: every column that a restore needs, nothing secret. A change that an older
 * reader would get wrong makes a new version.
 */

const Id = Type.String({ pattern: '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$' });
const Time = Type.String({
  pattern: '^\\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\\d|3[01])T([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d\\.\\d{3}Z$',
  description: 'RFC 3339, UTC, milliseconds.',
});
const Bytes = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, description: 'In bytes.' });
const Version = Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER });
const FileClass = Type.String({ pattern: '^[a-z][a-z0-9_-]{0,62}$' });
const Sha256 = Type.String({ pattern: '^[0-9a-f]{64}$' });

function orNull<T extends TSchema>(schema: T) {
  return Type.Union([schema, Type.Null()]);
}

function closed<T extends Record<string, TSchema>>(fields: T) {
  return Type.Object(fields, { additionalProperties: false });
}

const node = {
  created_at: Time,
  deleted_at: orNull(Time),
  id: Id,
  name: Type.String({ maxLength: 255 }),
  parent_id: orNull(Id),
  purge_at: orNull(Time),
  purged_at: orNull(Time),
  updated_at: Time,
  version: Version,
};

/** The schema of each section's records, in the order in which a document has them. Keys in the order of RFC 8785. */
export const recordSchemas = {
  directories: closed(node),
  files: closed({
    ...node,
    blob_id: Id,
    file_class: FileClass,
    media_type: Type.String({ maxLength: 255 }),
    size: Bytes,
  }),
  blobs: closed({
    chunk_crc32c: Type.String({ pattern: '^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$' }),
    created_at: Time,
    delete_after: orNull(Time),
    id: Id,
    sha256: orNull(Sha256),
    size: Bytes,
  }),
  replicas: closed({
    backend_id: Id,
    blob_id: Id,
    created_at: Time,
    key: Type.String({ maxLength: 255 }),
    state: Type.Union([
      Type.Literal('available'),
      Type.Literal('unverified'),
      Type.Literal('copying'),
      Type.Literal('corrupt'),
      Type.Literal('missing'),
      Type.Literal('removing'),
    ]),
    verified_at: orNull(Time),
  }),
  backends: closed({
    config: Type.Record(Type.String(), Type.Union([Type.String({ maxLength: 4096 }), Type.Boolean(), Type.Null()])),
    created_at: Time,
    enabled: Type.Boolean(),
    id: Id,
    is_default: Type.Boolean(),
    marked: Type.Boolean({ description: 'Its identity marker was written: one that is missing means a lost disk.' }),
    name: Type.String({ maxLength: 255 }),
    secret_fields: Type.Array(Type.String({ maxLength: 64 }), { description: 'Which secrets it had; none is here.' }),
    type: Type.Union([Type.Literal('local_directory'), Type.Literal('s3'), Type.Literal('webdav')]),
    updated_at: Time,
    version: Version,
  }),
  policies: closed({
    backends: Type.Array(Id, { minItems: 1, maxItems: 100 }),
    file_class: FileClass,
    replicas: Type.Integer({ minimum: 1, maximum: 100 }),
    sync_replicas: Type.Integer({ minimum: 1, maximum: 100 }),
    updated_at: Time,
    version: Version,
  }),
} as const satisfies Record<string, TObject>;

export type SectionName = keyof typeof recordSchemas;
export type RecordOf<S extends SectionName> = Static<(typeof recordSchemas)[S]>;

/** In the order in which a document has them, which is also the order of its digest. */
export const sectionNames = [
  'directories',
  'files',
  'blobs',
  'replicas',
  'backends',
  'policies',
] as const satisfies readonly SectionName[];
