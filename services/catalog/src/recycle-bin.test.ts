import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { newId, rootDirectoryId } from '@stowage/common/ids';
import { NodeKind, OnConflict } from '@stowage/proto/stowage/catalog/v1/node';
import type { Node } from '@stowage/proto/stowage/catalog/v1/node';
import { codeOf, eventsOf, idOf, keeping, nodeOf, startTestCatalog } from './test-catalog.ts';
import type { TestCatalog } from './test-catalog.ts';

let catalog: TestCatalog;
beforeAll(async () => {
  catalog = await startTestCatalog();
});
afterAll(() => catalog.close());
beforeEach(() => catalog.reset());

const { FAIL, RENAME } = OnConflict;
const at = () => catalog.context();

async function read(node: Node): Promise<Node> {
  return nodeOf(await catalog.tree.getNode(idOf(node), at()));
}

async function recycle(node: Node): Promise<Node> {
  return nodeOf(await catalog.tree.recycleNode(idOf(node), at()));
}

async function restore(
  node: Node,
  more: { parentId?: string; name?: string; onConflict?: OnConflict } = {},
): Promise<Node> {
  return nodeOf(await catalog.tree.restoreNode({ onConflict: FAIL, ...more, ...idOf(node) }, at()));
}

const purgeNode = (node: Node) => catalog.tree.purgeNode(idOf(node), at());

async function bin(limit = 100): Promise<Node[]> {
  return (await catalog.tree.listRecycleBin({ limit, cursor: '' }, at())).items;
}

async function count(from: string): Promise<number> {
  const { rows } = await catalog.admin.query(`select count(*)::int as count from ${from}`);
  return rows[0].count;
}

function ms(time: { seconds: bigint; nanos: number } | undefined): number {
  return time ? Number(time.seconds) * 1_000 + time.nanos / 1e6 : Number.NaN;
}

describe('recycling', () => {
  test('marks one row, and all below it reads as recycled with the same times', async () => {
    const top = await catalog.directory('top');
    const inner = await catalog.directory('inner', top.id);
    const file = await catalog.file('a.txt', inner.id);
    const recycled = await recycle(top);
    expect(recycled).toMatchObject({ recycled: true, version: 2n, path: '/top', parentId: rootDirectoryId });
    expect(ms(recycled.purgeAt) - ms(recycled.deletedAt)).toBe(keeping.retentionMs);
    const { deletedAt, purgeAt } = recycled;
    expect(await read(top)).toEqual(recycled);
    expect(await read(file)).toEqual({ ...file, recycled: true, deletedAt, purgeAt });
    expect(await count('catalog.nodes where deleted_at is not null')).toBe(1);
    const page = await catalog.tree.listChildren({ directoryId: inner.id, limit: 10 }, at());
    expect(page.directory).toMatchObject({ recycled: true, path: '/top/inner' });
    expect(page.items).toEqual([await read(file)]);
    expect(await eventsOf(catalog.db)).toContain('recycled top');
  });

  test('again gives the same answer and tells nothing', async () => {
    const file = await catalog.file('a.txt');
    const first = await recycle(file);
    expect(await recycle(file)).toEqual(first);
    expect(await eventsOf(catalog.db)).toEqual(['created a.txt', 'recycled a.txt']);
  });

  test('is refused for the root and below a recycled directory, but not for an entry there', async () => {
    const top = await catalog.directory('top');
    const [own, below] = [await catalog.file('own', top.id), await catalog.file('below', top.id)];
    const first = await recycle(own);
    await recycle(top);
    expect(await recycle(own)).toEqual(first);
    expect(await codeOf(recycle(below))).toBe('state_conflict');
    const root = { id: rootDirectoryId, kind: NodeKind.DIRECTORY };
    expect(await codeOf(catalog.tree.recycleNode(root, at()))).toBe('state_conflict');
  });

  test('frees the name', async () => {
    const file = await catalog.file('a.txt');
    await recycle(file);
    const other = await catalog.file('a.txt');
    await recycle(other);
    expect((await bin()).map((node) => node.id)).toEqual([other.id, file.id]);
  });

  test('closes the directory to new nodes', async () => {
    const top = await catalog.directory('top');
    const inner = await catalog.directory('inner', top.id);
    await recycle(top);
    for (const { id } of [top, inner]) {
      expect(await codeOf(catalog.directory('x', id))).toBe('state_conflict');
      expect(await codeOf(catalog.file('x', id))).toBe('state_conflict');
      expect(await codeOf(catalog.content.checkDestination({ directoryId: id }, at()))).toBe('state_conflict');
    }
  });
});

describe('restoring', () => {
  test('brings all of a directory back but what was recycled before', async () => {
    const top = await catalog.directory('top');
    const [own, file] = [await catalog.file('own', top.id), await catalog.file('a.txt', top.id)];
    await recycle(own);
    await recycle(top);
    expect((await bin()).map((node) => node.path)).toEqual(['/top', '/top/own']);
    const restored = await restore(top);
    expect(restored).toMatchObject({ recycled: false, version: 3n, path: '/top' });
    expect(restored.purgeAt).toBeUndefined();
    expect(await read(file)).toEqual(file);
    expect((await bin()).map((node) => node.id)).toEqual([own.id]);
    expect(await restore(own)).toMatchObject({ path: '/top/own', version: 3n });
    expect((await eventsOf(catalog.db)).slice(-2)).toEqual(['restored top', 'restored own']);
  });

  test('goes elsewhere and under another name if told so', async () => {
    const [from, to] = [await catalog.directory('from'), await catalog.directory('to')];
    const file = await catalog.file('a.txt', from.id);
    await recycle(file);
    await recycle(from);
    expect(await restore(file, { parentId: to.id, name: 'b.txt' })).toMatchObject({ path: '/to/b.txt' });
    expect(await read(file)).toMatchObject({ parentId: to.id, recycled: false });
  });

  test('onto a taken name is refused, or takes the next free one', async () => {
    const file = await catalog.file('a.txt');
    await recycle(file);
    const taken = await catalog.file('a.txt');
    await expect(restore(file)).rejects.toMatchObject({ code: 'name_conflict', members: { conflicting_id: taken.id } });
    expect(await restore(file, { onConflict: RENAME })).toMatchObject({ name: 'a (2).txt' });
    await recycle(taken);
    expect(await restore(taken, { name: 'c.txt' })).toMatchObject({ name: 'c.txt' });
  });

  test('is refused for what is no entry of the bin, and says which directory to restore', async () => {
    const top = await catalog.directory('top');
    const below = await catalog.file('a.txt', top.id);
    expect(await codeOf(restore(below))).toBe('state_conflict');
    await recycle(top);
    await expect(restore(below)).rejects.toMatchObject({
      code: 'state_conflict',
      detail: expect.stringContaining(`"top": restore that directory (${top.id})`),
    });
    expect(await codeOf(restore(await catalog.directory('live')))).toBe('state_conflict');
  });

  test('has no parent where it is recycled, purged or gone', async () => {
    const [top, other] = [await catalog.directory('top'), await catalog.directory('other')];
    const inner = await catalog.directory('inner', top.id);
    const file = await catalog.file('a.txt', inner.id);
    await recycle(file);
    await recycle(top);
    expect(await codeOf(restore(file))).toBe('parent_missing');
    expect(await codeOf(restore(file, { parentId: top.id }))).toBe('parent_missing');
    expect(await codeOf(restore(top, { parentId: inner.id }))).toBe('parent_missing');
    expect(await codeOf(restore(file, { parentId: newId() }))).toBe('not_found');
    await purgeNode(top);
    expect(await codeOf(restore(file))).toBe('parent_missing');
    expect(await codeOf(restore(file, { parentId: inner.id }))).toBe('not_found');
    await catalog.purge();
    expect(await codeOf(restore(file))).toBe('parent_missing');
    expect(await restore(file, { parentId: other.id })).toMatchObject({ path: '/other/a.txt' });
  });
});

describe('the recycle bin', () => {
  test('lists entries in pages, newest deletion first, none twice and none left out', async () => {
    const top = await catalog.directory('top');
    const made: Node[] = [];
    for (let n = 0; n < 7; n += 1) made.push(await catalog.file(`f${n}`, top.id));
    // The same time for some, so that the id has to decide.
    for (const node of made) await recycle(node);
    await catalog.admin.query("update catalog.nodes set deleted_at = '2026-01-01' where name in ('f2', 'f3', 'f4')");
    const seen: Node[] = [];
    let cursor = '';
    for (let page = 0; ; page += 1) {
      const answer = await catalog.tree.listRecycleBin({ limit: 2, cursor }, at());
      seen.push(...answer.items);
      if (answer.nextCursor === undefined) break;
      if (page === 0) await restore(seen[0] as Node);
      cursor = answer.nextCursor;
    }
    expect(seen.map((node) => node.name)).toEqual(['f6', 'f5', 'f1', 'f0', 'f4', 'f3', 'f2']);
    expect(await codeOf(catalog.tree.listRecycleBin({ limit: 2, cursor: 'bm9uZQ' }, at()))).toBe('validation_failed');
    expect(await codeOf(catalog.tree.listRecycleBin({ limit: 0, cursor: '' }, at()))).toBe('validation_failed');
  });

  test('keeps an entry whose directory is purged, with a path of its own', async () => {
    const top = await catalog.directory('top');
    const inner = await catalog.directory('inner', top.id);
    const [deep, kept] = [await catalog.file('deep.txt', inner.id), await catalog.directory('kept', inner.id)];
    const below = await catalog.file('below.txt', kept.id);
    await recycle(deep);
    await recycle(kept);
    await recycle(top);
    await purgeNode(top);
    const check = async () => {
      const entries = await bin();
      expect(entries.map((node) => [node.path, node.parentId])).toEqual([
        ['/kept', undefined],
        ['/deep.txt', undefined],
      ]);
      expect(await read(below)).toMatchObject({ path: '/kept/below.txt', recycled: true, parentId: kept.id });
      for (const gone of [top, inner]) expect(await codeOf(read(gone))).toBe('not_found');
    };
    await check();
    await catalog.purge();
    await check();
    expect(await count('catalog.nodes')).toBe(4);
  });
});

describe('purging', () => {
  test('a file deletes its row and leaves its content to a job after the grace time', async () => {
    const file = await catalog.file('a.txt');
    expect(await codeOf(purgeNode(file))).toBe('state_conflict');
    await recycle(file);
    await purgeNode(file);
    expect(await codeOf(read(file))).toBe('not_found');
    expect(await codeOf(purgeNode(file))).toBe('not_found');
    expect(await count('catalog.nodes')).toBe(1);
    const { rows } = await catalog.admin.query(
      `select j.kind, j.params, j.run_after = b.delete_after as same, j.run_after > now() + interval '6 days' as later, b.id
       from jobs.jobs j, catalog.blobs b`,
    );
    expect(rows).toEqual([
      { kind: 'remove_blob', params: { blob_id: rows[0].id }, same: true, later: true, id: rows[0].id },
    ]);
    expect((await eventsOf(catalog.db)).at(-1)).toBe('purged a.txt');
  });

  test('a directory closes all below it at once, and a job deletes the rows', async () => {
    const top = await catalog.directory('top');
    const file = await catalog.file('a.txt', (await catalog.directory('inner', top.id)).id);
    await recycle(top);
    expect(await codeOf(purgeNode(file))).toBe('state_conflict');
    await purgeNode(top);
    for (const node of [top, file]) expect(await codeOf(read(node))).toBe('not_found');
    expect(await codeOf(catalog.content.getContent({ fileId: file.id }, at()))).toBe('not_found');
    expect(await codeOf(catalog.tree.listChildren({ directoryId: top.id, limit: 1 }, at()))).toBe('not_found');
    expect(await codeOf(catalog.directory('x', top.id))).toBe('not_found');
    expect(await bin()).toEqual([]);
    expect(await count("jobs.jobs where kind = 'purge_recycle_bin' and run_after <= now()")).toBe(1);
    expect(await catalog.purge()).toEqual({ entries: 0, nodes: 3 });
    expect(await count('catalog.nodes')).toBe(1);
    expect(await count("jobs.jobs where kind = 'remove_blob'")).toBe(1);
    expect(await count('catalog.blobs where delete_after is not null')).toBe(1);
    expect(await catalog.purge()).toEqual({ entries: 0, nodes: 0 });
  });

  test('the time of an entry being over is the job, which tells of it', async () => {
    const [old, recent] = [await catalog.directory('old'), await catalog.file('recent')];
    await catalog.file('a.txt', old.id);
    await recycle(old);
    await recycle(recent);
    expect(await catalog.purge()).toEqual({ entries: 0, nodes: 0 });
    await catalog.admin.query("update catalog.nodes set purge_at = now() - interval '1 second' where name = 'old'");
    expect(await catalog.purge()).toEqual({ entries: 1, nodes: 2 });
    expect((await bin()).map((node) => node.name)).toEqual(['recent']);
    expect((await eventsOf(catalog.db)).filter((event) => event.startsWith('purged'))).toEqual(['purged old']);
  });

  test('a big tree takes many small transactions, and goes on after a stop', async () => {
    const top = await catalog.directory('top');
    // 30 directories of 100 directories with a file each, and 2,500 files in one.
    await catalog.admin.query(
      `with dirs as (insert into catalog.nodes (id, parent_id, kind, name)
         select gen_random_uuid(), $1, 'directory', 'd' || n from generate_series(1, 30) n returning id),
       inner_dirs as (insert into catalog.nodes (id, parent_id, kind, name)
         select gen_random_uuid(), id, 'directory', 'e' || n from dirs, generate_series(1, 100) n returning id),
       homes as (select id, row_number() over () as n from inner_dirs union all select $1, generate_series(3001, 5500)),
       blobs as (insert into catalog.blobs (id, size, sha256, chunk_crc32c)
         select gen_random_uuid(), 1, sha256('x'), '\\x00000000' from generate_series(1, 5500) returning id),
       numbered as (select id, row_number() over () as n from blobs)
       insert into catalog.nodes (id, parent_id, kind, name, blob_id, size, media_type, file_class)
       select gen_random_uuid(), homes.id, 'file', 'f' || homes.n, numbered.id, 1, 'text/plain', 'document'
       from homes join numbered using (n)`,
      [top.id],
    );
    await recycle(top);
    await purgeNode(top);
    const stop = new AbortController();
    stop.abort();
    expect(await codeOf(catalog.purge({}, stop.signal))).not.toBe('no error');
    expect(await count('catalog.nodes')).toBe(1 + 1 + 30 + 3_000 + 5_500);
    expect(await Promise.all([catalog.purge(), catalog.purge()])).toHaveLength(2);
    expect(await count('catalog.nodes')).toBe(1);
    expect(await count("jobs.jobs where kind = 'remove_blob' and state = 'pending'")).toBe(5_500);
    expect(await count("jobs.outbox where subject = 'stowage.jobs.remove_blob.pending'")).toBe(5_500);
    expect(await count('catalog.blobs where delete_after is null')).toBe(0);
  }, 60_000);

  test('a purged entry inside a directory that is purged later does not hold it up', async () => {
    const top = await catalog.directory('top');
    const inner = await catalog.directory('inner', top.id);
    await recycle(inner);
    await purgeNode(inner);
    await recycle(top);
    await purgeNode(top);
    expect(await catalog.purge()).toEqual({ entries: 0, nodes: 2 });
  });
});

describe('emptying the bin', () => {
  test('removes all entries of now, files and directories, and counts them', async () => {
    const [top, file, live] = [
      await catalog.directory('top'),
      await catalog.file('a.txt'),
      await catalog.file('b.txt'),
    ];
    await catalog.file('below', top.id);
    await recycle(top);
    await recycle(file);
    expect(await catalog.tree.emptyRecycleBin({}, at())).toMatchObject({ entries: 2n });
    expect(await bin()).toEqual([]);
    for (const node of [top, file]) expect(await codeOf(read(node))).toBe('not_found');
    expect(await codeOf(restore(file))).toBe('not_found');
    expect(await catalog.purge()).toEqual({ entries: 0, nodes: 3 });
    expect(await read(live)).toEqual(live);
    expect(await count("jobs.jobs where kind = 'remove_blob'")).toBe(2);
    expect((await eventsOf(catalog.db)).slice(-2).sort()).toEqual(['purged a.txt', 'purged top']);
    expect(await catalog.tree.emptyRecycleBin({}, at())).toMatchObject({ entries: 0n });
  });

  test('with the same idempotency key empties nothing that was recycled since', async () => {
    const key = { key: 'k', route: 'DELETE /api/files/recycle-bin', fingerprint: 'x' };
    await recycle(await catalog.file('a.txt'));
    expect(await catalog.tree.emptyRecycleBin({}, catalog.context(key))).toMatchObject({ entries: 1n });
    await recycle(await catalog.file('b.txt'));
    expect(await catalog.tree.emptyRecycleBin({}, catalog.context(key))).toMatchObject({ entries: 1n });
    expect((await bin()).map((node) => node.name)).toEqual(['b.txt']);
  });

  test('is finished by its job where the process died in the middle', async () => {
    const [a, b] = [await catalog.file('a.txt'), await catalog.file('b.txt')];
    await recycle(a);
    const { rows } = await catalog.admin.query('select now() as now');
    const params = { empty_before: rows[0].now.toISOString(), actor: 'u', request_id: 'r' };
    await catalog.admin.query(
      "update catalog.nodes set deleted_at = deleted_at - interval '1 minute' where name = 'a.txt'",
    );
    await recycle(b);
    await catalog.admin.query(
      "update catalog.nodes set deleted_at = deleted_at + interval '1 minute' where name = 'b.txt'",
    );
    expect(await catalog.purge(params)).toEqual({ entries: 1, nodes: 1 });
    expect((await bin()).map((node) => node.name)).toEqual(['b.txt']);
    const events = await catalog.admin.query("select data from jobs.outbox where subject = 'stowage.files.purged'");
    expect(events.rows[0].data).toMatchObject({ name: 'a.txt', actor: 'u', request_id: 'r' });
  });
});
