import { Type } from 'typebox';
import type { TSchema } from 'typebox';
import { recordSchemas, sectionNames } from './records.ts';
import type { SectionName } from './records.ts';

/** What a document says of itself. */
export const documentFormat = { format: 'stowage-metadata', format_version: 1 } as const;

/** What the records of a section are ordered by. */
const orders: Readonly<Record<SectionName, string>> = {
  directories: 'id',
  files: 'id',
  blobs: 'id',
  replicas: 'blob_id, then backend_id',
  backends: 'id',
  policies: 'file_class, byte by byte',
};

/** The JSON Schema (2020-12) of a whole document of the current format version. */
export const documentSchema = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  $id: `urn:stowage:metadata:${documentFormat.format_version}`,
  title: 'A Stowage metadata document',
  ...Type.Object(
    {
      format: Type.Literal(documentFormat.format),
      format_version: Type.Literal(documentFormat.format_version),
      exported_at: recordSchemas.directories.properties.created_at,
      instance_id: Type.String({
        pattern: '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$',
        description: 'Of the installation that wrote it.',
      }),
      ...perSection((name) => Type.Array(recordSchemas[name], { description: `Ordered by ${orders[name]}.` })),
      counts: Type.Object(
        perSection(() => Type.Integer({ minimum: 0 })),
        { additionalProperties: false, description: 'How many records each section has.' },
      ),
      sha256: Type.String({
        pattern: '^[0-9a-f]{64}$',
        description:
          'Over, for each section in the order directories, files, blobs, replicas, backends, policies: its name and LF, then ' +
          'the canonical JSON (RFC 8785) of each record and LF.',
      }),
    },
    { additionalProperties: false },
  ),
};

function perSection(schemaOf: (name: SectionName) => TSchema): Record<string, TSchema> {
  return Object.fromEntries(sectionNames.map((name) => [name, schemaOf(name)]));
}
