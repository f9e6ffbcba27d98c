import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { AppError } from '@stowage/common/errors';
import { rootDirectoryId } from '@stowage/common/ids';
import { NodeKind, OnConflict } from '@stowage/proto/stowage/catalog/v1/node';
import type { Node } from '@stowage/proto/stowage/catalog/v1/node';
import { codeOf, commitRequest, idOf, nodeOf, startTestCatalog } from './test-catalog.ts';
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

function moveTo(node: Node, parentId: string, onConflict: OnConflict = FAIL): Promise<unknown> {
  return catalog.tree.moveNode({ ...idOf(node), parentId, onConflict }, at());
}

/** What must hold at any moment, as counts of what breaks it. */
async function faults(): Promise<Record<string, number>> {
  const { rows } = await catalog.admin.query(`
    with recursive down as (
      select id from catalog.nodes where parent_id is null
      union all select n.id from down join catalog.nodes n on n.parent_id = down.id
    )
    select
      (select count(*)::int from catalog.nodes where id not in (select id from down)) as unreachable,
      (select count(*)::int from (select from catalog.nodes where deleted_at is null and parent_id is not null
        group by parent_id, name having count(*) > 1) twins) as twins,
      (select count(*)::int from catalog.nodes n where parent_id is null and deleted_at is null and purged_at is null
        and id <> '${rootDirectoryId}') as homeless,
      (select count(*)::int from catalog.nodes n join catalog.nodes p on p.id = n.parent_id where p.kind = 'file') as in_files,
      (select count(*)::int from catalog.blobs b where delete_after is null
        and not exists (select from catalog.nodes n where n.blob_id = b.id)) as leaked_blobs,
      (select count(*)::int from catalog.blobs b where delete_after is not null
        and exists (select from catalog.nodes n where n.blob_id = b.id)) as doomed_blobs`);
  return rows[0];
}

const none = { unreachable: 0, twins: 0, homeless: 0, in_files: 0, leaked_blobs: 0, doomed_blobs: 0 };

describe('at the same moment', () => {
  test('opposite moves of directories never make a cycle', async () => {
    for (let round = 0; round < 15; round += 1) {
      const ring: Node[] = [];
      for (let n = 0; n < 4; n += 1) ring.push(await catalog.directory(`d${round}-${n}`));
      const codes = await Promise.all(ring.map((node, n) => codeOf(moveTo(node, ring[(n + 1) % 4]?.id ?? ''))));
      expect(codes.sort()).toEqual(['cycle', 'no error', 'no error', 'no error']);
    }
    expect(await faults()).toEqual(none);
  });

  test('twenty creations with one name and on_conflict rename get twenty names', async () => {
    const make = (n: number): Promise<Node> =>
      n % 2 === 0
        ? catalog.tree
            .createDirectory({ parentId: rootDirectoryId, name: 'a.b', onConflict: RENAME }, at())
            .then(nodeOf)
        : catalog.file('a.b', rootDirectoryId, { onConflict: RENAME });
    const names = (await Promise.all(Array.from({ length: 20 }, (_, n) => make(n)))).map((node) => node.name);
    expect(names.sort()).toEqual(['a.b', ...Array.from({ length: 19 }, (_, n) => `a (${n + 2}).b`)].sort());
  });

  test('twenty moves and renames onto one name get twenty names', async () => {
    const target = await catalog.directory('target');
    const nodes: Node[] = [];
    for (let n = 0; n < 20; n += 1) {
      const home = n % 2 === 0 ? await catalog.directory(`home${n}`) : target;
      nodes.push(await catalog.file(n % 2 === 0 ? 'a' : `b${n}`, home.id));
    }
    await Promise.all(
      nodes.map((node, n) =>
        n % 2 === 0
          ? moveTo(node, target.id, RENAME)
          : catalog.tree.renameNode({ ...idOf(node), name: 'a', onConflict: RENAME }, at()),
      ),
    );
    const { items } = await catalog.tree.listChildren({ directoryId: target.id, limit: 100 }, at());
    expect(items.map((node) => node.name).sort()).toEqual(
      ['a', ...Array.from({ length: 19 }, (_, n) => `a (${n + 2})`)].sort(),
    );
  });

  test('twenty creations with one name and on_conflict fail make one', async () => {
    const codes = await Promise.all(Array.from({ length: 20 }, () => codeOf(catalog.directory('a'))));
    expect(codes.filter((code) => code === 'no error')).toHaveLength(1);
    expect(codes.filter((code) => code === 'name_conflict')).toHaveLength(19);
  });

  test('changes of one version let one through', async () => {
    const file = await catalog.file('a');
    const change = (n: number) =>
      catalog.tree.renameNode({ ...idOf(file), name: `b${n}`, onConflict: FAIL, ifMatch: { versions: [1n] } }, at());
    const codes = await Promise.all(Array.from({ length: 10 }, (_, n) => codeOf(change(n))));
    expect(codes.filter((code) => code === 'no error')).toHaveLength(1);
    expect(codes.filter((code) => code === 'precondition_failed')).toHaveLength(9);
  });

  test('restore and purge of one entry let one through', async () => {
    for (let round = 0; round < 10; round += 1) {
      const file = await catalog.file(`a${round}`);
      await catalog.tree.recycleNode(idOf(file), at());
      const [restored, purged] = await Promise.all([
        codeOf(catalog.tree.restoreNode({ ...idOf(file), onConflict: FAIL }, at())),
        codeOf(catalog.tree.purgeNode(idOf(file), at())),
      ]);
      expect([
        ['no error', 'state_conflict'],
        ['not_found', 'no error'],
      ]).toContainEqual([restored, purged]);
    }
    expect(await faults()).toEqual(none);
  });

  test('making, moving and committing into a directory that is purged leaves no orphan', async () => {
    for (let round = 0; round < 8; round += 1) {
      const top = await catalog.directory(`top${round}`);
      const inner = await catalog.directory('inner', top.id);
      const moved = await catalog.file(`moved${round}`);
      const escaping = await catalog.directory('escaping', inner.id);
      const allowed = ['no error', 'not_found', 'state_conflict', 'parent_missing'];
      const purged = (async () => {
        await catalog.tree.recycleNode(idOf(top), at());
        await catalog.tree.purgeNode(idOf(top), at());
        await catalog.purge();
      })();
      const others = await Promise.all([
        ...Array.from({ length: 6 }, (_, n) => codeOf(catalog.directory(`d${n}`, inner.id))),
        ...Array.from({ length: 6 }, (_, n) => codeOf(catalog.file(`f${n}`, inner.id))),
        codeOf(moveTo(moved, inner.id)),
        codeOf(moveTo(escaping, rootDirectoryId, RENAME)),
      ]);
      await purged;
      for (const code of others) expect(allowed).toContain(code);
      await catalog.purge();
      expect(await faults()).toEqual(none);
    }
  });
});

describe('a purge', () => {
  /** Runs statements in a transaction of its own and commits only when a purge that was started waits for it. */
  async function purgeBehind(statements: readonly [string, readonly unknown[]][]): Promise<void> {
    const client = await catalog.admin.connect();
    try {
      await client.query('begin');
      for (const [text, values] of statements) await client.query(text, [...values]);
      const purging = catalog.purge();
      const blocked = "select count(*)::int as blocked from pg_locks where not granted and locktype = 'transactionid'";
      for (let waiting = 0; waiting === 0;) waiting = (await catalog.admin.query(blocked)).rows[0].blocked;
      await client.query('commit');
      await purging;
    } finally {
      client.release();
    }
  }

  async function purgedTop(): Promise<{ top: Node; inner: Node }> {
    const top = await catalog.directory('top');
    const inner = await catalog.directory('inner', top.id);
    await catalog.file('a', inner.id);
    await catalog.tree.recycleNode(idOf(top), at());
    await catalog.tree.purgeNode(idOf(top), at());
    return { top, inner };
  }

  test('takes what is being made in a purged directory with it', async () => {
    const { top } = await purgedTop();
    const values = "(gen_random_uuid(), $1, 'directory', 'late')";
    await purgeBehind([[`insert into catalog.nodes (id, parent_id, kind, name) values ${values}`, [top.id]]]);
    const { rows } = await catalog.admin.query('select id from catalog.nodes');
    expect(rows).toEqual([{ id: rootDirectoryId }]);
  });

  test('leaves alone what is being moved out of a purged directory', async () => {
    const { top, inner } = await purgedTop();
    await purgeBehind([['update catalog.nodes set parent_id = $1 where id = $2', [rootDirectoryId, inner.id]]]);
    expect(nodeOf(await catalog.tree.getNode(idOf(inner), at()))).toMatchObject({ path: '/inner', recycled: false });
    expect(await codeOf(catalog.tree.getNode(idOf(top), at()))).toBe('not_found');
    expect(await faults()).toEqual(none);
  });

  test('leaves alone what is being restored when its time is over', async () => {
    const entry = await catalog.directory('entry');
    await catalog.admin.query(
      "update catalog.nodes set deleted_at = now(), purge_at = now() - interval '1 second' where id = $1",
      [entry.id],
    );
    await purgeBehind([['update catalog.nodes set deleted_at = null, purge_at = null where id = $1', [entry.id]]]);
    expect(nodeOf(await catalog.tree.getNode(idOf(entry), at()))).toMatchObject({ recycled: false });
  });
});

/** A small generator of numbers from a seed (mulberry32), so that a failing run can be repeated. */
function randomFrom(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % below;
  };
}

describe('a storm of changes', () => {
  const expected = ['name_conflict', 'state_conflict', 'not_found', 'cycle', 'parent_missing', 'validation_failed'];

  test.each([1, 2, 3])(
    'leaves names unique, no cycle, no orphan, and no other errors (seed %d)',
    async (seed) => {
      const random = randomFrom(seed);
      const directories = [{ id: rootDirectoryId, kind: DIRECTORY as NodeKind }];
      const files: typeof directories = [];
      const pick = (list: typeof directories) => list[random(list.length)] ?? { id: rootDirectoryId, kind: DIRECTORY };
      const anyNode = () => (random(2) === 0 || files.length === 0 ? pick(directories) : pick(files));
      const name = () => `n${random(6)}`;
      const onConflict = () => (random(2) === 0 ? FAIL : RENAME);
      const { tree, content } = catalog;
      const operations: (() => Promise<unknown>)[] = [
        async () => {
          const { node } = await tree.createDirectory(
            { parentId: pick(directories).id, name: name(), onConflict: onConflict() },
            at(),
          );
          if (node) directories.push({ id: node.id, kind: DIRECTORY });
        },
        async () => {
          const request = { ...commitRequest(name(), pick(directories).id), onConflict: onConflict() };
          const { file } = await content.commitFile(request, at());
          if (file) files.push({ id: file.id, kind: FILE });
        },
        () => tree.renameNode({ ...anyNode(), name: name(), onConflict: onConflict() }, at()),
        () => tree.moveNode({ ...anyNode(), parentId: pick(directories).id, onConflict: onConflict() }, at()),
        () => tree.moveNode({ ...pick(directories), parentId: pick(directories).id, onConflict: RENAME }, at()),
        () => tree.recycleNode(anyNode(), at()),
        () => tree.restoreNode({ ...anyNode(), parentId: pick(directories).id, onConflict: onConflict() }, at()),
        () => tree.restoreNode({ ...anyNode(), onConflict: onConflict() }, at()),
        () =>
          random(4) === 0 ? tree.purgeNode(anyNode(), at()) : tree.listRecycleBin({ limit: 10, cursor: '' }, at()),
        () =>
          random(8) === 0 ? catalog.purge() : tree.listChildren({ directoryId: pick(directories).id, limit: 10 }, at()),
      ];
      let left = 1_000;
      let done = 0;
      const client = async (): Promise<void> => {
        while (left > 0) {
          left -= 1;
          try {
            await operations[random(operations.length)]?.();
            done += 1;
          } catch (error) {
            expect(error instanceof AppError ? error.code : error).toEqual(
              expect.stringMatching(new RegExp(`^(${expected.join('|')})$`)),
            );
          }
        }
      };
      await Promise.all(Array.from({ length: 50 }, client));
      expect(done).toBeGreaterThan(200);
      expect(await faults()).toEqual(none);
      await catalog.purge();
      expect(await faults()).toEqual(none);
      const { rows } = await catalog.admin.query(
        'select count(*)::int as left from catalog.nodes where purged_at is not null',
      );
      expect(rows).toEqual([{ left: 0 }]);
    },
    60_000,
  );
});
