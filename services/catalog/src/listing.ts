import { sql } from 'kysely';
import type { QueryExecutorProvider, RawBuilder } from 'kysely';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { decodeCursor, encodeCursor } from '@stowage/common/cursor';
import { isId } from '@stowage/common/ids';
import { NodeKind } from '@stowage/proto/stowage/catalog/v1/node';
import { SortKey } from '@stowage/proto/stowage/catalog/v1/tree';
import type { ListChildrenRequest, ListChildrenResponseSchema } from '@stowage/proto/stowage/catalog/v1/tree';
import { nodeMessage } from './node-message.ts';
import { nodeColumns, requireNode } from './nodes.ts';
import type { Kind, NodeRow } from './nodes.ts';
import { cursorFault, requireLimit, timeOf } from './paging.ts';
import { childStanding } from './standing.ts';

/** What the children of each kind are sorted by; directories have no size. */
const columns = {
  name: { directory: 'name', file: 'name' },
  created_at: { directory: 'created_at', file: 'created_at' },
  updated_at: { directory: 'updated_at', file: 'updated_at' },
  size: { directory: 'name', file: 'size' },
} as const;
type Sort = keyof typeof columns;
type Column = (typeof columns)[Sort][Kind];

/** The last row of the page before. */
interface Position {
  kind: Kind;
  key: string;
  id: string;
}

/** What one page is asked for. */
export interface Page {
  directoryId: string;
  sort: Sort;
  descending: boolean;
  kinds: readonly Kind[];
  after: Position | null;
  limit: number;
}

/** Reads one page of a directory's children. Throws `not_found`, and `validation_failed` for a cursor that is none. */
export async function listChildren(
  db: QueryExecutorProvider,
  request: ListChildrenRequest,
): Promise<MessageInitShape<typeof ListChildrenResponseSchema>> {
  const page = pageOf(request);
  const directory = await requireNode(db, request.directoryId, 'directory');
  const { rows } = await pageQuery(page).execute(db);
  const shown = rows.slice(0, page.limit);
  const last = shown.at(-1);
  return {
    directory: nodeMessage(directory),
    items: shown.map((row) =>
      nodeMessage({ row, standing: childStanding(directory.row.id, directory.standing, row.name) }),
    ),
    ...(last && rows.length > page.limit ? { nextCursor: cursorAt(page, last) } : {}),
  };
}

/** One statement for a page and one row more: a branch a kind, each read in the order of its index. */
export function pageQuery(page: Page): RawBuilder<NodeRow> {
  const branches = page.kinds
    .filter((kind) => !(kind === 'directory' && page.after?.kind === 'file'))
    .map((kind) => branch(page, kind));
  return sql<NodeRow>`
    select ${nodeColumns}, (select sha256 from catalog.blobs b where b.id = n.blob_id)
    from (${sql.join(branches, sql` union all `)}) n
    order by n.kind, n.place limit ${page.limit + 1}`;
}

function branch(page: Page, kind: Kind): RawBuilder<unknown> {
  const column = columns[page.sort][kind];
  const direction = page.descending ? sql`desc` : sql`asc`;
  const key = sql.ref(`n.${column}`);
  // A name is unique among its siblings, and its index ends there.
  const order = column === 'name' ? sql`${key} ${direction}` : sql`${key} ${direction}, n.id ${direction}`;
  return sql`(
    select ${nodeColumns}, row_number() over (order by ${order}) as place from catalog.nodes n
    where n.parent_id = ${page.directoryId} and n.kind = ${sql.lit(kind)} and n.deleted_at is null
      ${page.after?.kind === kind ? beyond(page.after, column, page.descending) : sql``}
    order by ${order} limit ${page.limit + 1})`;
}

function beyond({ key, id }: Position, column: Column, descending: boolean): RawBuilder<unknown> {
  const beyondIt = descending ? sql`<` : sql`>`;
  if (column === 'name') return sql`and n.name ${beyondIt} ${key}`;
  return sql`and (${sql.ref(`n.${column}`)}, n.id) ${beyondIt} (${key}, ${id})`;
}

function pageOf(request: ListChildrenRequest): Page {
  const sort = sortOf(request.sort);
  const { descending } = request;
  return {
    directoryId: request.directoryId,
    sort,
    descending,
    kinds: kindsOf(request.kind),
    after: positionOf(request.cursor, sort, descending),
    limit: requireLimit(request.limit),
  };
}

function sortOf(key: SortKey): Sort {
  switch (key) {
    case SortKey.CREATED_AT:
      return 'created_at';
    case SortKey.UPDATED_AT:
      return 'updated_at';
    case SortKey.SIZE:
      return 'size';
    default:
      return 'name';
  }
}

function kindsOf(kind: NodeKind): readonly Kind[] {
  if (kind === NodeKind.DIRECTORY) return ['directory'];
  if (kind === NodeKind.FILE) return ['file'];
  return ['directory', 'file'];
}

function cursorAt(page: Page, row: NodeRow): string {
  return encodeCursor([
    orderOf(page.sort, page.descending),
    row.kind,
    keyOf(row, columns[page.sort][row.kind]),
    row.id,
  ]);
}

function keyOf(row: NodeRow, column: Column): string {
  const value = row[column];
  return value instanceof Date ? value.toISOString() : (value ?? '0');
}

function positionOf(cursor: string, sort: Sort, descending: boolean): Position | null {
  const values = decodeCursor(cursor, 4);
  if (!values) return null;
  const [order, kind, key = '', id = ''] = values;
  if (order !== orderOf(sort, descending) || !isId(id)) throw cursorFault();
  if ((kind !== 'directory' && kind !== 'file') || !isKey(key, columns[sort][kind])) throw cursorFault();
  return { kind, key, id };
}

/** Binds a cursor to the order that it was made in. */
function orderOf(sort: Sort, descending: boolean): string {
  return `${sort} ${descending ? 'desc' : 'asc'}`;
}

function isKey(key: string, column: Column): boolean {
  if (column === 'name') return !key.includes('\0') && key.isWellFormed();
  if (column === 'size') return /^\d{1,18}$/.test(key);
  return timeOf(key) !== null;
}
