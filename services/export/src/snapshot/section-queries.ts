import { inKeyOrder } from '../document/canonical.ts';
import type { SectionName } from '../document/records.ts';

/** A row as pg gives it. */
type Row = Record<string, unknown>;

/** How a section is read, in the order of its records' ids. */
interface SectionQuery {
  text: string;
  /** A row whose columns need more than the driver did; its keys are in order already. */
  record?(row: Row): Row;
}

const time = (column: string): string =>
  `to_char(${column} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as ${column.replace(/^\w\./, '')}`;

// Sizes and versions stay far below 2^53, where a double still counts by one.
const number = (column: string): string => `${column}::float8 as ${column.replace(/^\w\./, '')}`;

const nodes = (kind: 'directory' | 'file'): string => {
  const ofFile = kind === 'file';
  const columns = [
    ...(ofFile ? ['blob_id'] : []),
    time('created_at'),
    time('deleted_at'),
    ...(ofFile ? ['file_class'] : []),
    'id',
    ...(ofFile ? ['media_type'] : []),
    'name',
    'parent_id',
    time('purge_at'),
    time('purged_at'),
    ...(ofFile ? [number('size')] : []),
    time('updated_at'),
    number('version'),
  ];
  return `select ${columns.join()} from catalog.nodes where kind = '${kind}' order by id`;
};

/** Column by column in the order of RFC 8785, so that a row is a record whose keys are in order. */
export const sectionQueries: Readonly<Record<SectionName, SectionQuery>> = {
  directories: { text: nodes('directory') },
  files: { text: nodes('file') },
  blobs: {
    text: `
      select translate(encode(chunk_crc32c, 'base64'), e'\\n', '') as chunk_crc32c, ${time('created_at')},
        ${time('delete_after')}, id, encode(sha256, 'hex') as sha256, ${number('size')}
      from catalog.blobs order by id`,
  },
  replicas: {
    text: `
      select backend_id, blob_id, ${time('created_at')}, key, state, ${time('verified_at')}
      from catalog.replicas order by blob_id, backend_id`,
  },
  backends: {
    text: `
      select b.config, ${time('b.created_at')}, b.enabled, b.id, b.is_default, b.marked, b.name,
        coalesce(s.fields, '{}') as secret_fields, b.type, ${time('b.updated_at')}, ${number('b.version')}
      from registry.backends b left join registry.backend_secret_fields s on s.backend_id = b.id order by b.id`,
    record: (row) => ({ ...row, config: inKeyOrder(Object(row['config'])) }),
  },
  policies: {
    text: `
      select array(
          select backend_id from placement.policy_backends b where b.file_class = p.file_class order by position
        ) as backends, file_class, replicas, sync_replicas, ${time('updated_at')}, ${number('version')}
      from placement.policies p order by file_class collate "C"`,
  },
};
