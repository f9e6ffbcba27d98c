import type { StagedTable } from '../document/staged-tables.ts';

/** The live records that answer to a staged table, under the same names of columns. */
interface LiveRecords {
  /** A table, or a query in brackets. */
  from: string;
  /** What tells that two records are the same one. */
  key: readonly string[];
  /** What tells that a record has changed; `r` stands for either side. */
  columns: readonly string[];
}

const policies = `
  (select file_class collate "C" as file_class, replicas, sync_replicas, version, updated_at, array(
    select backend_id from placement.policy_backends b where b.file_class = p.file_class order by position) as backends
   from placement.policies p)`;

/** Whether a replica comes in as one to be read from. */
export function isThere(alias: string): string {
  return `${alias}.state not in ('corrupt', 'missing', 'removing')`;
}

/** Each column that a document carries, but for those of which this says why not. */
export const liveRecords: Readonly<Record<StagedTable, LiveRecords>> = {
  nodes: {
    from: 'catalog.nodes',
    // A directory of a file's id is another node.
    key: ['id', 'kind'],
    columns: [
      'r.parent_id',
      'r.name',
      'r.version',
      'r.created_at',
      'r.updated_at',
      'r.deleted_at',
      'r.purge_at',
      'r.purged_at',
      'r.blob_id',
      'r.size',
      'r.media_type',
      'r.file_class',
    ],
  },
  blobs: {
    from: 'catalog.blobs',
    key: ['id'],
    columns: ['r.size', 'r.sha256', 'r.created_at', 'r.delete_after', 'r.chunk_crc32c'],
  },
  replicas: {
    from: 'catalog.replicas',
    key: ['blob_id', 'backend_id'],
    // What is there comes in as unverified, in whatever state it was, and so does what did not change: that is told by a
    // warning, as it would hide all else here.
    columns: ['r.key', `case when ${isThere('r')} then 'there' else r.state end`, 'r.created_at'],
  },
  backends: {
    from: 'registry.backends',
    key: ['id'],
    // What an admin sees. An import never takes a version back, so that nothing that was begun before fits by chance.
    columns: ['r.name', 'r.type', 'r.enabled', 'r.is_default', 'r.config'],
  },
  policies: {
    from: policies,
    key: ['file_class'],
    columns: ['r.replicas', 'r.sync_replicas', 'r.backends', 'r.version', 'r.updated_at'],
  },
};

/** The columns of one side, as the fields of a row. */
export function rowOf(table: StagedTable, alias: string): string {
  const own = (column: string): string => column.replaceAll('r.', `${alias}.`);
  return `row(${liveRecords[table].columns.map(own).join()})`;
}

/** A full join of staged (`s`) and live (`l`) records. */
export function joined(table: StagedTable, staged: string): string {
  const { from, key } = liveRecords[table];
  return `${staged} s full join ${from} l on ${key.map((column) => `l.${column} = s.${column}`).join(' and ')}`;
}

/** What an import would do to a joined record: create, update, remove or unchanged. */
export function actionOf(table: StagedTable): string {
  const [key] = liveRecords[table].key;
  return `
    case when l.${key} is null then 'create' when s.${key} is null then 'remove'
      when ${rowOf(table, 's')} is distinct from ${rowOf(table, 'l')} then 'update' else 'unchanged' end`;
}
