import type { ClientBase } from 'pg';
import { stagedTable, stagedTables } from '../document/staged-tables.ts';
import type { StagedTable } from '../document/staged-tables.ts';

/** The table of what differs between the metadata and staged ones: `what` is insert, update or remove. */
export function changesOf(number: number, table: StagedTable): string {
  return `${stagedTable(number, table)}_changes`;
}

/**
 * Compares all metadata with a staged document, into tables that live as long as the transaction. Only what differs is
 * written later: that is what an import costs most. A backend that is none of `known` counts as `moved`.
 */
export async function findChanges(client: ClientBase, number: number, known: readonly string[]): Promise<void> {
  for (const table of stagedTables) await client.query(`analyze ${stagedTable(number, table)}`);
  for (const table of stagedTables) {
    const into = changesOf(number, table);
    await client.query(`create unlogged table ${into} with (autovacuum_enabled = false) as ${queries[table](number)}`);
    await client.query(`analyze ${into}`);
  }
  const backends = changesOf(number, 'backends');
  await client.query(`alter table ${backends} add column moved boolean not null default true`);
  await client.query(`update ${backends} set moved = false where id = any($1::uuid[])`, [known]);
}

export async function dropChanges(client: ClientBase, number: number): Promise<void> {
  await client.query(`drop table ${stagedTables.map((table) => changesOf(number, table)).join()}`);
}

const what = (staged: string, live: string): string =>
  `case when ${live} is null then 'insert' when ${staged} is null then 'remove' else 'update' end as what`;

function differ(columns: readonly string[], staged = 's', live = 'n'): string {
  const of = (alias: string): string => columns.map((column) => `${alias}.${column}`).join();
  return `(${of(staged)}) is distinct from (${of(live)})`;
}

/** All but the key. */
export const nodeColumns = [
  'parent_id',
  'kind',
  'name',
  'version',
  'created_at',
  'updated_at',
  'deleted_at',
  'purge_at',
  'purged_at',
  'blob_id',
  'size',
  'media_type',
  'file_class',
] as const;
export const blobColumns = ['size', 'sha256', 'chunk_crc32c', 'created_at', 'delete_after'] as const;
export const policyColumns = ['replicas', 'sync_replicas', 'version', 'updated_at'] as const;

const queries: Readonly<Record<StagedTable, (number: number) => string>> = {
  nodes: (number) => `
    select coalesce(s.id, n.id) as id, ${what('s.id', 'n.id')}
    from ${stagedTable(number, 'nodes')} s full join catalog.nodes n on n.id = s.id
    where s.id is null or n.id is null or ${differ(nodeColumns)}`,
  blobs: (number) => `
    select coalesce(s.id, n.id) as id, ${what('s.id', 'n.id')}, s.size <> n.size as resized
    from ${stagedTable(number, 'blobs')} s full join catalog.blobs n on n.id = s.id
    where s.id is null or n.id is null or ${differ(blobColumns)}`,
  replicas: replicaChanges,
  backends: (number) => `
    select coalesce(s.id, n.id) as id, ${what('s.id', 'n.id')}
    from ${stagedTable(number, 'backends')} s full join registry.backends n on n.id = s.id
    where s.id is null or n.id is null or ${differ(['name', 'type', 'enabled', 'is_default', 'config'])}`,
  policies: (number) => `
    select coalesce(s.file_class, n.file_class) as file_class, ${what('s.file_class', 'n.file_class')}
    from ${stagedTable(number, 'policies')} s full join (
      select p.*, array(
        select backend_id from placement.policy_backends b where b.file_class = p.file_class order by position) as backends
      from placement.policies p) n on n.file_class = s.file_class
    where s.file_class is null or n.file_class is null or ${differ([...policyColumns, 'backends'])}`,
};

/**
 * Replicas as they are to be. What was, or may be, whole is `unverified`, also where it was read lately: the document tells
 * what was, and nothing of it justifies a removal. That a removal of one had begun is forgotten where the content is
 * wanted: it can be read as long as it is there. `verified_at` goes, for nobody read it since.
 *
 * Those of a blob of another size are made anew, as kept counts go by what was when a replica was made.
 */
function replicaChanges(number: number): string {
  return `
    with wanted as (
      select r.blob_id, r.backend_id, 'blobs/' || right(r.blob_id::text, 2) || '/' || r.blob_id as key, case
          when r.state in ('corrupt', 'missing') then r.state
          when r.state = 'removing' and b.delete_after is not null then r.state
          else 'unverified' end as state, r.created_at
      from ${stagedTable(number, 'replicas')} r join ${stagedTable(number, 'blobs')} b on b.id = r.blob_id
    )
    select coalesce(s.blob_id, n.blob_id) as blob_id, coalesce(s.backend_id, n.backend_id) as backend_id,
      case when n.blob_id is null then 'insert' when s.blob_id is null then 'remove'
        when c.resized then 'replace' else 'update' end as what, s.key, s.state, s.created_at
    from wanted s full join catalog.replicas n on n.blob_id = s.blob_id and n.backend_id = s.backend_id
      left join ${changesOf(number, 'blobs')} c on c.id = n.blob_id and c.resized
    where s.blob_id is null or n.blob_id is null or c.resized
      or (s.key, s.state, s.created_at) is distinct from (n.key, n.state, n.created_at)
      or n.verified_at is not null or n.removing_since is not null`;
}
