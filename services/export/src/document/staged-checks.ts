import type { ClientBase } from 'pg';
import { rootDirectoryId } from '@stowage/common/ids';
import { walkMax } from '@stowage/common/tree-limits';
import { findingsMax } from './findings.ts';
import type { Findings } from './findings.ts';
import { stagedTable, stagedTables } from './staged-tables.ts';
import type { StagedTable } from './staged-tables.ts';

/** What is wrong where a query finds rows. Each row has the `pointer` of its record, and may have a code and detail of its own. */
interface Check {
  level: 'error' | 'warning';
  code: string;
  detail: string;
  sql(table: (name: StagedTable) => string): string;
}

interface Row {
  pointer: string;
}

/** The record's pointer, of a row of nodes. */
const nodePointer = (alias: string, field: string): string =>
  `case ${alias}.kind when 'file' then '/files/' else '/directories/' end || ${alias}.position || '${field}' as pointer`;

const error = (code: string, detail: string, sql: Check['sql']): Check => ({ level: 'error', code, detail, sql });
const warning = (code: string, detail: string, sql: Check['sql']): Check => ({ level: 'warning', code, detail, sql });

const rootChecks: readonly Check[] = [
  error(
    'root_missing',
    'The root directory is missing.',
    (table) =>
      `select '/directories' as pointer where not exists (
       select from ${table('nodes')} where id = '${rootDirectoryId}' and kind = 'directory')`,
  ),
  error(
    'duplicate_id',
    'A directory has the same id.',
    (table) =>
      `select ${nodePointer('f', '/id')} from ${table('nodes')} f join ${table('nodes')} d on d.id = f.id
     where f.kind = 'file' and d.kind = 'directory'`,
  ),
];

const treeChecks: readonly Check[] = [
  error(
    'unknown_parent',
    'The parent is not a directory of the document.',
    (table) =>
      `select ${nodePointer('n', '/parent_id')} from ${table('nodes')} n
     where parent_id is not null and not exists (
       select from ${table('nodes')} d where d.id = n.parent_id and d.kind = 'directory')`,
  ),
  error(
    'name_conflict',
    'Another one of the same name is in the same directory.',
    (table) =>
      `with twice as (
       select parent_id, name, min(id::text)::uuid as id from ${table('nodes')}
       where deleted_at is null and parent_id is not null group by parent_id, name having count(*) > 1)
     select ${nodePointer('n', '/name')} from ${table('nodes')} n join twice t
       on t.parent_id = n.parent_id and t.name = n.name and t.id <> n.id where n.deleted_at is null`,
  ),
];

const contentChecks: readonly Check[] = [
  error(
    'unknown_blob',
    'The blob is not in the document.',
    (table) =>
      `select ${nodePointer('n', '/blob_id')} from ${table('nodes')} n
     where kind = 'file' and not exists (select from ${table('blobs')} b where b.id = n.blob_id)`,
  ),
  error(
    'size_mismatch',
    'The blob has another size.',
    (table) =>
      `select ${nodePointer('n', '/size')} from ${table('nodes')} n join ${table('blobs')} b on b.id = n.blob_id
     where b.size <> n.size`,
  ),
  error(
    'blob_without_digest',
    'The blob was given up: it has no sha256.',
    (table) =>
      `select ${nodePointer('n', '/blob_id')} from ${table('nodes')} n join ${table('blobs')} b on b.id = n.blob_id
     where b.sha256 is null`,
  ),
  error(
    'unknown_blob',
    'The blob is not in the document.',
    (table) =>
      `select '/replicas/' || position || '/blob_id' as pointer from ${table('replicas')} r
     where not exists (select from ${table('blobs')} b where b.id = r.blob_id)`,
  ),
  error(
    'unknown_backend',
    'The backend is not in the document.',
    (table) =>
      `select '/replicas/' || position || '/backend_id' as pointer from ${table('replicas')} r
     where not exists (select from ${table('backends')} b where b.id = r.backend_id)`,
  ),
  warning(
    'file_without_replica',
    'No backend has the content of this file.',
    (table) =>
      `select ${nodePointer('n', '')} from ${table('nodes')} n
     where kind = 'file' and not exists (select from ${table('replicas')} r where r.blob_id = n.blob_id)`,
  ),
  warning(
    'blob_without_file',
    'No file has this content, and it does not wait for its removal.',
    (table) =>
      `select '/blobs/' || position as pointer from ${table('blobs')} b
     where delete_after is null and not exists (select from ${table('nodes')} n where n.blob_id = b.id)`,
  ),
  warning(
    'blob_to_be_removed',
    'The content of this file waits for its removal.',
    (table) =>
      `select ${nodePointer('n', '/blob_id')} from ${table('nodes')} n join ${table('blobs')} b on b.id = n.blob_id
     where b.delete_after is not null and b.sha256 is not null`,
  ),
];

const placementChecks: readonly Check[] = [
  error(
    'name_conflict',
    'Another backend has the same name.',
    (table) =>
      `select '/backends/' || b.position || '/name' as pointer from ${table('backends')} b
     where exists (select from ${table('backends')} o where o.name = b.name and o.position < b.position)`,
  ),
  error(
    'default_backend',
    'There must be a backend, and only one can be the default one.',
    (table) =>
      `select '/backends' as pointer from ${table('backends')} having count(*) = 0 or count(*) filter (where is_default) > 1`,
  ),
  error(
    'default_policy',
    'The policy “default” is missing.',
    (table) =>
      `select '/policies' as pointer from ${table('policies')} having count(*) = 0
       or (count(*) filter (where file_class = 'default') = 0
         and exists (select from ${table('backends')} where is_default))`,
  ),
  error(
    'too_many',
    'There can not be more than 1,000 policies.',
    (table) => `select '/policies' as pointer from ${table('policies')} having count(*) > 1000`,
  ),
  error(
    'unknown_backend',
    'The backend is not in the document.',
    (table) =>
      `select '/policies/' || p.position || '/backends/' || (named.place - 1) as pointer
     from ${table('policies')} p, unnest(p.backends) with ordinality as named (id, place)
     where not exists (select from ${table('backends')} b where b.id = named.id)`,
  ),
];

const depthChecks: readonly Check[] = [
  error(
    'cycle',
    'The directory lies inside itself.',
    (table) => `
      select '/directories/' || position || '/parent_id' as pointer from ${table('nodes')} n
      where kind = 'directory' and not exists (select from reached r where r.id = n.id)`,
  ),
  warning(
    'too_deep',
    `The directory lies more than ${walkMax} deep: what is below it can not be reached.`,
    () => `select '/directories/' || position as pointer from reached where depth = ${walkMax}`,
  ),
];

/** The checks of what records say of each other. Notes what they find; each finds at most 1,000. */
export async function checkStaged(
  client: ClientBase,
  number: number,
  { findings, instanceId }: { findings: Findings; instanceId: string | null },
  signal: AbortSignal,
): Promise<void> {
  const run = async (checks: readonly Check[]): Promise<boolean> => {
    const before = findings.errorCount;
    for (const check of checks) {
      signal.throwIfAborted();
      await look(client, number, check, findings);
    }
    return findings.errorCount === before;
  };
  for (const table of stagedTables) await client.query(`analyze ${stagedTable(number, table)}`);
  await checkInstance(client, instanceId, findings);
  await run(placementChecks);
  const isRooted = await run(rootChecks);
  if ((await run(treeChecks)) && isRooted) await inTree(client, number, () => run(depthChecks));
  await run(contentChecks);
}

async function look(client: ClientBase, number: number, check: Check, findings: Findings): Promise<void> {
  const sql = check.sql((name) => stagedTable(number, name));
  const { rows } = await client.query<Row>(`${sql} limit ${findingsMax}`);
  for (const { pointer } of rows) findings[check.level](pointer, check.code, check.detail);
}

/** Runs `work` where the table `reached` has each directory that is found by going down from the top, and its depth. */
async function inTree(client: ClientBase, number: number, work: () => Promise<unknown>): Promise<void> {
  const nodes = stagedTable(number, 'nodes');
  await client.query(`create index on ${nodes} (parent_id) where kind = 'directory'`);
  await client.query('begin');
  // The planner can't know how little there is on each level, and would read all nodes for each of them.
  await client.query('set local enable_hashjoin = off; set local enable_mergejoin = off');
  await client.query(`
    create temporary table reached on commit drop as
    with recursive reached as (
      select id, position, 0 as depth from ${nodes} where kind = 'directory' and parent_id is null
      union all
      select d.id, d.position, r.depth + 1 from reached r join ${nodes} d on d.parent_id = r.id
      where d.kind = 'directory')
    select * from reached`);
  await client.query('set local enable_hashjoin = on; analyze reached');
  await work();
  await client.query('commit');
}

async function checkInstance(client: ClientBase, instanceId: string | null, findings: Findings): Promise<void> {
  const { rows } = await client.query<{ id: string }>('select id from export.instance');
  if (instanceId === null || rows[0]?.id === instanceId) return;
  findings.warning('/instance_id', 'other_installation', 'The document was exported by another installation.');
}
