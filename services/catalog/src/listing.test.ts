import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { RawBuilder } from 'kysely';
import { encodeCursor } from '@stowage/common/cursor';
import { newId, rootDirectoryId } from '@stowage/common/ids';
import { NodeKind } from '@stowage/proto/stowage/catalog/v1/node';
import type { Node } from '@stowage/proto/stowage/catalog/v1/node';
import { SortKey } from '@stowage/proto/stowage/catalog/v1/tree';
import type { ListChildrenResponse } from '@stowage/proto/stowage/catalog/v1/tree';
import { pageQuery } from './listing.ts';
import type { Page } from './listing.ts';
import { codeOf, idOf, startTestCatalog } from './test-catalog.ts';
import type { TestCatalog } from './test-catalog.ts';

let catalog: TestCatalog;
beforeAll(async () => {
  catalog = await startTestCatalog();
});
afterAll(() => catalog.close());

const at = () => catalog.context();
const sorts = [SortKey.NAME, SortKey.CREATED_AT, SortKey.UPDATED_AT, SortKey.SIZE] as const;
const orders = sorts.flatMap((sort) => [false, true].map((descending) => ({ sort, descending })));

interface Options {
  sort?: SortKey;
  descending?: boolean;
  kind?: NodeKind;
  limit?: number;
  cursor?: string;
}

function list(directoryId: string, options: Options = {}): Promise<ListChildrenResponse> {
  return catalog.tree.listChildren({ limit: 100, ...options, directoryId }, at());
}

/** Walks all pages; `between` runs after each. */
async function walk(directoryId: string, options: Options, between?: (page: Node[]) => Promise<void>): Promise<Node[]> {
  const items: Node[] = [];
  for (let cursor: string | undefined = ''; cursor !== undefined;) {
    const page: ListChildrenResponse = await list(directoryId, { ...options, cursor });
    if (page.nextCursor !== undefined) expect(page.items).toHaveLength(options.limit ?? 100);
    items.push(...page.items);
    cursor = page.nextCursor;
    await between?.(page.items);
  }
  return items;
}

/** Nodes with few different keys, so that ties are the rule; gives them as the listing must order them. */
async function seed(directoryId: string, count: number): Promise<void> {
  await catalog.admin.query(
    `with blob as (insert into catalog.blobs (id, size, sha256, chunk_crc32c)
       values (gen_random_uuid(), 1, sha256('x'), '\\x00000000') returning id)
     insert into catalog.nodes (id, parent_id, kind, name, created_at, updated_at, blob_id, size, media_type, file_class)
     select overlay(gen_random_uuid()::text placing '7' from 15)::uuid, $1, case when file then 'file' else 'directory' end,
       chr(97 + n % 26) || case n % 3 when 0 then 'É' when 1 then 'z' else '' end || n,
       timestamptz '2026-01-01' + n % 7 * interval '1 second', timestamptz '2026-01-01' + n % 5 * interval '1 ms',
       case when file then blob.id end, case when file then n % 11 end,
       case when file then 'text/plain' end, case when file then 'document' end
     from blob, (select n, n % 4 > 0 as file from generate_series(1, $2) n) numbered`,
    [directoryId, count],
  );
}

function expectedOrder(nodes: readonly Node[], sort: SortKey, descending: boolean): Node[] {
  const time = (value: Node['createdAt']) => Number(value?.seconds) * 1e9 + Number(value?.nanos);
  const name = (node: Node) => Buffer.from(node.name).toString('hex');
  const key = (node: Node): string | number => {
    if (sort === SortKey.CREATED_AT) return time(node.createdAt);
    if (sort === SortKey.UPDATED_AT) return time(node.updatedAt);
    return sort === SortKey.SIZE && node.file ? Number(node.file.size) : name(node);
  };
  const compare = (a: string | number, b: string | number) => (a < b ? -1 : a > b ? 1 : 0);
  return [...nodes].sort((a, b) => {
    const inKind = compare(key(a), key(b)) || compare(a.id, b.id);
    return compare(a.kind, b.kind) || (descending ? -inKind : inKind);
  });
}

describe('a listing', () => {
  let directory: Node;
  let all: Node[];
  beforeAll(async () => {
    directory = await catalog.directory('listed');
    await seed(directory.id, 60);
    all = (await list(directory.id)).items;
  });

  test.each(orders)('has directories first, then files, each in order: %j', async ({ sort, descending }) => {
    const expected = expectedOrder(all, sort, descending).map((node) => node.name);
    for (const limit of [1, 7, 15, 59, 60]) {
      const walked = await walk(directory.id, { sort, descending, limit });
      expect(walked.map((node) => node.name)).toEqual(expected);
    }
  });

  test('gives each item as reading it does, and the directory', async () => {
    for (const item of all.slice(0, 20)) {
      expect((await catalog.tree.getNode(idOf(item), at())).node).toEqual(item);
    }
    const page = await list(directory.id, { limit: 60 });
    expect(page.directory).toEqual(directory);
    expect(page.nextCursor).toBeUndefined();
  });

  test('of one kind has that kind only', async () => {
    for (const kind of [NodeKind.DIRECTORY, NodeKind.FILE]) {
      const walked = await walk(directory.id, { kind, limit: 8, sort: SortKey.SIZE });
      expect(new Set(walked.map((node) => node.kind))).toEqual(new Set([kind]));
      expect(walked).toHaveLength(all.filter((node) => node.kind === kind).length);
    }
  });

  test('of an empty directory is empty, of a file or nothing not found', async () => {
    const empty = await catalog.directory('empty');
    expect(await list(empty.id)).toMatchObject({ items: [] });
    const file = await catalog.file('a.txt');
    for (const id of [file.id, newId(), 'root']) expect(await codeOf(list(id))).toBe('not_found');
  });

  test('skips and repeats nothing while others add and remove', async () => {
    const busy = await catalog.directory('busy');
    await seed(busy.id, 40);
    const before = (await list(busy.id)).items.map((node) => node.id);
    const seen = await walk(busy.id, { limit: 6 }, async (page) => {
      const [first] = page;
      if (first) await catalog.tree.recycleNode(idOf(first), at());
      await catalog.directory(`0${newId()}`, busy.id);
      await catalog.file(`zz${newId()}`, busy.id);
    });
    const ids = seen.map((node) => node.id);
    expect(new Set(ids).size).toBe(ids.length);
    expect(ids.filter((id) => before.includes(id))).toEqual(before);
  });

  test('refuses a limit or a cursor that is none, also a cursor of another order', async () => {
    const { nextCursor = '' } = await list(directory.id, { limit: 5 });
    expect(nextCursor).not.toBe('');
    const bad: Options[] = [
      { limit: 0 },
      { limit: 1_001 },
      { limit: -1 },
      { cursor: 'bm9uZQ' },
      { cursor: nextCursor, descending: true },
      { cursor: nextCursor, sort: SortKey.SIZE },
      { cursor: encodeCursor(['name asc', 'other', 'a', newId()]) },
      { cursor: encodeCursor(['name asc', 'file', 'a\0', newId()]) },
      { cursor: encodeCursor(['name asc', 'file', 'a', 'x']) },
      { cursor: encodeCursor(['size asc', 'file', 'x', newId()]), sort: SortKey.SIZE },
      {
        cursor: encodeCursor(['created_at asc', 'file', '2026-13-01T00:00:00.000Z', newId()]),
        sort: SortKey.CREATED_AT,
      },
    ];
    for (const options of bad) expect(await codeOf(list(directory.id, options))).toBe('validation_failed');
  });
});

interface PlanNode {
  'Node Type': string;
  'Relation Name'?: string;
  'Actual Rows': number;
  'Actual Loops': number;
  'Rows Removed by Filter'?: number;
  Plans?: PlanNode[];
}

function nodesOf(plan: PlanNode): PlanNode[] {
  return [plan, ...(plan.Plans ?? []).flatMap(nodesOf)];
}

async function explain(query: RawBuilder<unknown>): Promise<PlanNode[]> {
  const { sql: text, parameters } = query.compile(catalog.db);
  const { rows } = await catalog.admin.query(`explain (analyze, format json) ${text}`, [...parameters]);
  return nodesOf(rows[0]['QUERY PLAN'][0].Plan);
}

describe('a page of a directory of 100,000', () => {
  const limit = 100;
  beforeAll(async () => {
    await seed(rootDirectoryId, 100_000);
    await catalog.admin.query('analyze catalog.nodes');
  }, 120_000);

  test.each(orders)('reads no more rows than it gives, by index: %j', async ({ sort, descending }) => {
    const column = (['name', 'created_at', 'updated_at', 'size'] as const)[sort - 1] ?? 'name';
    const key = {
      name: 'm',
      created_at: '2026-01-01T00:00:03.000Z',
      updated_at: '2026-01-01T00:00:00.002Z',
      size: '5',
    }[column];
    const middle = { key, id: '7fffffff-ffff-7fff-bfff-ffffffffffff' };
    const positions: Page['after'][] = [null, { kind: 'file', ...middle }, { kind: 'directory', ...middle }];
    for (const after of column === 'size' ? positions.slice(0, 2) : positions) {
      const page: Page = {
        directoryId: rootDirectoryId,
        sort: column,
        descending,
        kinds: ['directory', 'file'],
        after,
        limit,
      };
      const plan = await explain(pageQuery(page));
      const scans = plan.filter((node) => node['Relation Name'] === 'nodes');
      expect(scans).toHaveLength(after?.kind === 'file' ? 1 : 2);
      for (const scan of scans) {
        expect(scan['Node Type']).toMatch(/^Index (Only )?Scan$/);
        expect(scan['Actual Rows']).toBeLessThanOrEqual(limit + 1);
        expect(scan['Rows Removed by Filter'] ?? 0).toBe(0);
      }
      for (const sorted of plan.filter((node) => node['Node Type'].includes('Sort'))) {
        expect(sorted['Actual Rows']).toBeLessThanOrEqual(2 * (limit + 1));
      }
    }
  });
});
