import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { newId, rootDirectoryId } from '@stowage/common/ids';
import { NodeKind, OnConflict } from '@stowage/proto/stowage/catalog/v1/node';
import type { Node } from '@stowage/proto/stowage/catalog/v1/node';
import { codeOf, eventsOf, idOf, nodeOf, startTestCatalog } from './test-catalog.ts';
import type { TestCatalog } from './test-catalog.ts';

let catalog: TestCatalog;
beforeAll(async () => {
  catalog = await startTestCatalog();
});
afterAll(() => catalog.close());
beforeEach(() => catalog.reset());

const { FAIL, RENAME } = OnConflict;
const { DIRECTORY, FILE } = NodeKind;
const at = () => catalog.context();

async function read({ id, kind }: { id: string; kind: NodeKind }): Promise<Node> {
  return nodeOf(await catalog.tree.getNode({ id, kind }, at()));
}

async function rename(node: Node, name: string, onConflict: OnConflict = FAIL): Promise<Node> {
  return nodeOf(await catalog.tree.renameNode({ ...idOf(node), name, onConflict }, at()));
}

async function move(node: Node, parent: Node | string, name?: string, onConflict: OnConflict = FAIL): Promise<Node> {
  const parentId = typeof parent === 'string' ? parent : parent.id;
  return nodeOf(await catalog.tree.moveNode({ ...idOf(node), parentId, onConflict, ...(name ? { name } : {}) }, at()));
}

async function recycle(node: Node): Promise<Node> {
  return nodeOf(await catalog.tree.recycleNode(idOf(node), at()));
}

describe('reading a node', () => {
  test('gives the root as any other directory', async () => {
    const root = await read({ id: rootDirectoryId, kind: DIRECTORY });
    expect(root).toMatchObject({ name: '', path: '/', version: 1n, recycled: false, kind: DIRECTORY });
    expect(root.parentId).toBeUndefined();
    expect(root.deletedAt).toBeUndefined();
  });

  test('gives the path, and what a file has beyond a name', async () => {
    const photos = await catalog.directory('photos');
    const year = await catalog.directory('2026', photos.id);
    const file = await catalog.file('a.txt', year.id);
    expect(await read(file)).toEqual(file);
    expect(file).toMatchObject({ path: '/photos/2026/a.txt', parentId: year.id, version: 1n });
    expect(file.file).toMatchObject({ size: 3n, mediaType: 'text/plain', fileClass: 'document' });
    expect(file.file?.sha256).toHaveLength(32);
    expect((await read(year)).file).toBeUndefined();
  });

  test('finds a node under its own kind only, and nothing under what is no id', async () => {
    const file = await catalog.file('a.txt');
    expect(await codeOf(read({ id: file.id, kind: DIRECTORY }))).toBe('not_found');
    expect(await codeOf(read({ id: rootDirectoryId, kind: FILE }))).toBe('not_found');
    expect(await codeOf(read({ id: newId(), kind: FILE }))).toBe('not_found');
    expect(await codeOf(read({ id: "' or 1=1", kind: FILE }))).toBe('not_found');
    expect(await codeOf(read({ id: file.id, kind: NodeKind.UNSPECIFIED }))).toBe('not_found');
  });
});

describe('making a directory', () => {
  test('keeps its name in NFC and tells of it once', async () => {
    const made = await catalog.directory('Cafe\u0301');
    expect(made).toMatchObject({ name: 'Caf\u00e9', path: '/Caf\u00e9', parentId: rootDirectoryId, version: 1n });
    expect(await read(made)).toEqual(made);
    expect(await eventsOf(catalog.db)).toEqual(['created Caf\u00e9']);
    const { rows } = await catalog.admin.query("select data from jobs.outbox where subject = 'stowage.files.created'");
    expect(rows[0].data).toEqual({
      id: made.id,
      kind: 'directory',
      parent_id: rootDirectoryId,
      name: 'Caf\u00e9',
      actor: '01900000-0000-7000-8000-0000000000aa',
      request_id: 'request-1',
    });
  });

  test('refuses a bad name, an unknown directory, and a file as directory', async () => {
    const file = await catalog.file('a.txt');
    expect(await codeOf(catalog.directory('a/b'))).toBe('validation_failed');
    expect(await codeOf(catalog.directory('b', newId()))).toBe('not_found');
    expect(await codeOf(catalog.directory('b', 'root'))).toBe('not_found');
    expect(await codeOf(catalog.directory('b', file.id))).toBe('not_found');
    expect(await eventsOf(catalog.db)).toEqual(['created a.txt']);
  });

  test('refuses a name that a file or directory has, in whatever normalisation', async () => {
    const file = await catalog.file('\u00e9');
    const call = catalog.directory('e\u0301');
    await expect(call).rejects.toMatchObject({
      code: 'name_conflict',
      members: { conflicting_id: file.id, conflicting_kind: 'file', name: '\u00e9' },
    });
    expect((await catalog.directory('\u00c9')).name).toBe('\u00c9');
  });

  test('takes the next free name where it is asked to', async () => {
    const make = async (name: string) =>
      nodeOf(await catalog.tree.createDirectory({ parentId: rootDirectoryId, name, onConflict: RENAME }, at())).name;
    expect([await make('a'), await make('a'), await make('a')]).toEqual(['a', 'a (2)', 'a (3)']);
    await catalog.directory('a (4)');
    expect(await make('a')).toBe('a (5)');
  });

  test('gives up after 10,000 names', async () => {
    await catalog.admin.query(
      `insert into catalog.nodes (id, parent_id, kind, name)
       select gen_random_uuid(), $1, 'directory', 'a' || case n when 1 then '' else ' (' || n || ')' end
       from generate_series(1, 10000) n`,
      [rootDirectoryId],
    );
    const make = () => catalog.tree.createDirectory({ parentId: rootDirectoryId, name: 'a', onConflict: RENAME }, at());
    expect(await codeOf(make())).toBe('name_conflict');
    await catalog.admin.query("delete from catalog.nodes where name = 'a (9999)'");
    expect(nodeOf(await make()).name).toBe('a (9999)');
  });

  test('goes 128 deep and no deeper', async () => {
    let parent = rootDirectoryId;
    for (let depth = 1; depth <= 128; depth += 1) parent = (await catalog.directory('d', parent)).id;
    await expect(catalog.directory('d', parent)).rejects.toMatchObject({
      code: 'validation_failed',
      members: { errors: [{ pointer: '/parent_id' }] },
    });
    expect((await read({ id: parent, kind: DIRECTORY })).path).toBe('/d'.repeat(128));
  }, 60_000);
});

describe('renaming', () => {
  test('changes one row, and the paths of all below it', async () => {
    const top = await catalog.directory('top');
    const file = await catalog.file('a.txt', top.id);
    const renamed = await rename(top, 'new');
    expect(renamed).toMatchObject({ name: 'new', path: '/new', version: 2n });
    expect(await read(top)).toEqual(renamed);
    expect(await read(file)).toEqual({ ...file, path: '/new/a.txt' });
    expect(await rename(file, 'b.txt')).toMatchObject({ path: '/new/b.txt', version: 2n });
    expect(await eventsOf(catalog.db)).toEqual(['created top', 'created a.txt', 'renamed new', 'renamed b.txt']);
  });

  test('to the same name changes nothing', async () => {
    const file = await catalog.file('\u00e9');
    expect(await rename(file, 'e\u0301')).toEqual(file);
    expect(await eventsOf(catalog.db)).toEqual(['created \u00e9']);
  });

  test('to a taken name is refused, or takes the next free one', async () => {
    const [a, b] = [await catalog.file('a.txt'), await catalog.directory('b.txt')];
    await expect(rename(b, 'a.txt')).rejects.toMatchObject({
      code: 'name_conflict',
      members: { conflicting_id: a.id },
    });
    const renamed = await rename(b, 'a.txt', RENAME);
    expect(renamed).toMatchObject({ name: 'a (2).txt', version: 2n });
    expect(await rename(renamed, 'a.txt', RENAME)).toEqual(renamed);
  });

  test('is refused for the root, for what is in the bin, and for what lies below it', async () => {
    const top = await catalog.directory('top');
    const below = await catalog.file('a.txt', top.id);
    const root = await read({ id: rootDirectoryId, kind: DIRECTORY });
    await recycle(top);
    for (const node of [root, top, below]) expect(await codeOf(rename(node, 'x'))).toBe('state_conflict');
    await expect(rename(below, 'x')).rejects.toMatchObject({ detail: expect.stringContaining(`"top"`) });
  });
});

describe('If-Match', () => {
  test('refuses every change of another version, before other rules, and changes nothing', async () => {
    const file = await catalog.file('a.txt');
    const taken = await catalog.file('b.txt');
    const ifMatch = { versions: [2n, 7n] };
    const { tree } = catalog;
    const calls = [
      tree.renameNode({ ...idOf(file), name: 'b.txt', onConflict: FAIL, ifMatch }, at()),
      tree.moveNode({ ...idOf(file), parentId: newId(), onConflict: FAIL, ifMatch }, at()),
      tree.recycleNode({ ...idOf(file), ifMatch }, at()),
      tree.restoreNode({ ...idOf(file), onConflict: FAIL, ifMatch }, at()),
      tree.purgeNode({ ...idOf(file), ifMatch }, at()),
      tree.renameNode({ id: rootDirectoryId, kind: DIRECTORY, name: 'x', onConflict: FAIL, ifMatch }, at()),
      tree.recycleNode({ ...idOf(file), ifMatch: { versions: [] } }, at()),
    ];
    for (const call of calls)
      await expect(call).rejects.toMatchObject({ code: 'precondition_failed', members: { version: 1 } });
    expect(await codeOf(tree.recycleNode({ id: newId(), kind: FILE, ifMatch }, at()))).toBe('not_found');
    expect([await read(file), await read(taken)]).toEqual([file, taken]);
  });

  test('lets a change of one of its versions through', async () => {
    const file = await catalog.file('a.txt');
    const request = { ...idOf(file), name: 'b', onConflict: FAIL, ifMatch: { versions: [5n, 1n] } };
    expect(nodeOf(await catalog.tree.renameNode(request, at())).version).toBe(2n);
    expect(await codeOf(catalog.tree.renameNode({ ...request, name: 'c' }, at()))).toBe('precondition_failed');
  });
});

describe('moving', () => {
  test('changes one row, with a new name if one is given', async () => {
    const [from, to] = [await catalog.directory('from'), await catalog.directory('to')];
    const inner = await catalog.directory('inner', from.id);
    const file = await catalog.file('a.txt', inner.id);
    const moved = await move(inner, to, 'renamed');
    expect(moved).toMatchObject({ path: '/to/renamed', parentId: to.id, version: 2n });
    expect(await read(inner)).toEqual(moved);
    expect(await read(file)).toEqual({ ...file, path: '/to/renamed/a.txt' });
    expect(await move(file, rootDirectoryId)).toMatchObject({ path: '/a.txt', version: 2n });
    expect((await eventsOf(catalog.db)).slice(-2)).toEqual(['moved renamed', 'moved a.txt']);
  });

  test('to where it is changes nothing', async () => {
    const top = await catalog.directory('top');
    const file = await catalog.file('a.txt', top.id);
    expect(await move(file, top)).toEqual(file);
    expect(await move(top, rootDirectoryId, 'top')).toEqual(top);
    expect(await move(top, rootDirectoryId, 'other')).toMatchObject({ name: 'other', version: 2n });
  });

  test('onto a taken name is refused, or takes the next free one', async () => {
    const top = await catalog.directory('top');
    const taken = await catalog.directory('a.txt', top.id);
    const file = await catalog.file('a.txt');
    await expect(move(file, top)).rejects.toMatchObject({
      code: 'name_conflict',
      members: { conflicting_id: taken.id, conflicting_kind: 'directory', name: 'a.txt' },
    });
    expect(await move(file, top, undefined, RENAME)).toMatchObject({ path: '/top/a (2).txt' });
  });

  test('of a directory under itself or what lies below it is a cycle', async () => {
    const top = await catalog.directory('top');
    const inner = await catalog.directory('inner', top.id);
    const innermost = await catalog.directory('innermost', inner.id);
    for (const target of [top, inner, innermost]) expect(await codeOf(move(top, target))).toBe('cycle');
    expect(await codeOf(move(innermost, top))).toBe('no error');
  });

  test('is refused for the root, to what is no directory, into the bin, and too deep', async () => {
    const [top, bin] = [await catalog.directory('top'), await catalog.directory('bin')];
    const below = await catalog.directory('below', bin.id);
    const file = await catalog.file('a.txt');
    const root = await read({ id: rootDirectoryId, kind: DIRECTORY });
    await recycle(bin);
    expect(await codeOf(move(root, top))).toBe('state_conflict');
    expect(await codeOf(move(top, file.id))).toBe('not_found');
    expect(await codeOf(move(top, newId()))).toBe('not_found');
    expect(await codeOf(move(top, bin))).toBe('state_conflict');
    expect(await codeOf(move(top, below))).toBe('state_conflict');
    expect(await codeOf(move(below, top))).toBe('state_conflict');
    let deep = top.id;
    for (let depth = 2; depth <= 128; depth += 1) deep = (await catalog.directory('d', deep)).id;
    await expect(move(file, deep)).rejects.toMatchObject({ members: { errors: [{ pointer: '/directory_id' }] } });
  }, 60_000);
});

describe('an idempotency key', () => {
  const key = { key: 'k1', route: 'POST /api/directories', fingerprint: 'one' };

  test('gives the first answer again, and is not kept by a failed call', async () => {
    const request = { parentId: rootDirectoryId, name: 'a', onConflict: FAIL };
    const taken = await catalog.directory('a');
    expect(await codeOf(catalog.tree.createDirectory(request, catalog.context(key)))).toBe('name_conflict');
    await rename(taken, 'b');
    const first = await catalog.tree.createDirectory(request, catalog.context(key));
    expect(await catalog.tree.createDirectory(request, catalog.context(key))).toEqual(first);
    const other = catalog.tree.createDirectory(
      { ...request, name: 'c' },
      catalog.context({ ...key, fingerprint: 'two' }),
    );
    expect(await codeOf(other)).toBe('idempotency_key_reused');
    expect(await eventsOf(catalog.db)).toEqual(['created a', 'renamed b', 'created a']);
  });

  test('makes one thing of many calls at the same moment', async () => {
    const request = { parentId: rootDirectoryId, name: 'a', onConflict: RENAME };
    const calls = Array.from({ length: 10 }, () => catalog.tree.createDirectory(request, catalog.context(key)));
    const ids = (await Promise.all(calls)).map((response) => nodeOf(response).id);
    expect(new Set(ids).size).toBe(1);
    expect(await eventsOf(catalog.db)).toEqual(['created a']);
  });
});
