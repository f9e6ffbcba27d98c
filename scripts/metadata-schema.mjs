// Writes the JSON Schema of metadata documents beside their fixtures; a test holds both together.
import { writeFile } from 'node:fs/promises';
import { documentFormat, documentSchema } from '../services/export/src/document/document-schema.ts';

const file = `../services/export/src/document/fixtures/format-${documentFormat.format_version}.schema.json`;
await writeFile(new URL(file, import.meta.url), `${JSON.stringify(documentSchema, null, 2)}\n`);
