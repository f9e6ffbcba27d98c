import type { RecordOf, SectionName } from './records.ts';
import type { StagedTable } from './staged-tables.ts';

interface CopyTarget<S extends SectionName> {
  table: StagedTable;
  columns: string;
  /** The values behind `position`, in PostgreSQL's text format for COPY. */
  row(record: RecordOf<S>): string;
}

/** Where each section's records are staged, and how. */
export const copyTargets: { readonly [S in SectionName]: CopyTarget<S> } = {
  directories: {
    table: 'nodes',
    columns: 'kind, id, parent_id, name, version, created_at, updated_at, deleted_at, purge_at, purged_at',
    row: (record) => `directory\t${nodeRow(record)}`,
  },
  files: {
    table: 'nodes',
    columns:
      'kind, id, parent_id, name, version, created_at, updated_at, deleted_at, purge_at, purged_at, blob_id, size, media_type, file_class',
    row: (record) =>
      `file\t${nodeRow(record)}\t${record.blob_id}\t${record.size}\t${escaped(record.media_type)}\t${record.file_class}`,
  },
  blobs: {
    table: 'blobs',
    columns: 'id, size, sha256, chunk_crc32c, created_at, delete_after',
    row: ({ id, size, sha256, chunk_crc32c: crcs, created_at: made, delete_after: after }) =>
      `${id}\t${size}\t${sha256 === null ? nothing : `\\\\x${sha256}`}\t\\\\x${hexOf(crcs)}\t${made}\t${after ?? nothing}`,
  },
  replicas: {
    table: 'replicas',
    columns: 'blob_id, backend_id, key, state, verified_at, created_at',
    row: (record) =>
      `${record.blob_id}\t${record.backend_id}\t${escaped(record.key)}\t${record.state}\t${record.verified_at ?? nothing}\t${record.created_at}`,
  },
  backends: {
    table: 'backends',
    columns: 'id, name, type, enabled, is_default, marked, config, secret_fields, version, created_at, updated_at',
    row: (record) =>
      [
        record.id,
        escaped(record.name),
        record.type,
        record.enabled,
        record.is_default,
        record.marked,
        escaped(JSON.stringify(record.config)),
        // Names of secrets are words of a-z and underscores.
        `{${record.secret_fields.join()}}`,
        record.version,
        record.created_at,
        record.updated_at,
      ].join('\t'),
  },
  policies: {
    table: 'policies',
    columns: 'file_class, replicas, sync_replicas, backends, version, updated_at',
    row: (record) =>
      `${record.file_class}\t${record.replicas}\t${record.sync_replicas}\t{${record.backends.join()}}\t${record.version}\t${record.updated_at}`,
  },
};

const nothing = '\\N';

function nodeRow(record: RecordOf<'directories'>): string {
  const { deleted_at: deleted, purge_at: purge, purged_at: purged } = record;
  return `${record.id}\t${record.parent_id ?? nothing}\t${escaped(record.name)}\t${record.version}\t${record.created_at}\t${record.updated_at}\t${deleted ?? nothing}\t${purge ?? nothing}\t${purged ?? nothing}`;
}

function hexOf(base64: string): string {
  return base64 === '' ? '' : Buffer.from(base64, 'base64').toString('hex');
}

const special = /[\\\t\n\r]/;

function escaped(text: string): string {
  if (!special.test(text)) return text;
  return text.replaceAll('\\', '\\\\').replaceAll('\t', '\\t').replaceAll('\n', '\\n').replaceAll('\r', '\\r');
}
