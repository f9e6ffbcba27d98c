import { beforeAll, describe, expect, test } from '@jest/globals';
import { expectStatus } from '@stowage/tests/support/client';
import type { Client, Json } from '@stowage/tests/support/client';
import { admin } from '@stowage/tests/support/contract';
import { expectProblem, pointersOf } from '@stowage/tests/support/problems';
import { unknownId } from '@stowage/tests/support/routes';
import { uniqueName } from '@stowage/tests/support/system';
import {
  at,
  byBytes,
  childNames,
  expectDirectory,
  expectFile,
  inBatches,
  readDirectory,
  readPages,
} from '@stowage/tests/support/tree';

let client: Client;

beforeAll(async () => {
  client = await admin();
});

async function freshDirectory(): Promise<string> {
  return (await client.makeDirectory(uniqueName('listing')))['id'];
}

function listOf(id: string, query = ''): string {
  return `/api/directories/${id}/children${query}`;
}

const namesOf = (items: readonly Json[]): string[] => items.map((item) => item['name']);

describe('a listing', () => {
  test('answers the directory, its children whole, and a cursor or null', async () => {
    const id = await freshDirectory();
    const directory = await client.makeDirectory('d', id);
    const file = await client.putFile('f', 'content', { directory: id });
    const answer = expectStatus(await client.get(listOf(id)), 200);
    expect(answer.json).toEqual({
      directory: await readDirectory(client, id),
      items: [directory, file],
      next_cursor: null,
    });
    expectDirectory(answer.json['directory']);
    expectDirectory(at(answer.json['items'], 0), { parent_id: id });
    expectFile(at(answer.json['items'], 1), { directory_id: id });
  });

  test('of an empty directory is empty', async () => {
    const { json } = expectStatus(await client.get(listOf(await freshDirectory())), 200);
    expect(json).toMatchObject({ items: [], next_cursor: null });
  });

  test('of what is not there, or is a file, is 404', async () => {
    const file = await client.putFile(uniqueName(), 'x', { directory: await freshDirectory() });
    for (const id of [unknownId, file['id'], 'nothing']) expectProblem(await client.get(listOf(id)), 404, 'not_found');
  });

  test('shows neither what lies deeper nor what is in the bin', async () => {
    const id = await freshDirectory();
    const inner = await client.makeDirectory('inner', id);
    await client.makeDirectory('deeper', inner['id']);
    const [gone, goneFile] = [
      await client.makeDirectory('gone', id),
      await client.putFile('gone.txt', 'x', { directory: id }),
    ];
    expectStatus(await client.delete(`/api/directories/${gone['id']}`), 200);
    expectStatus(await client.delete(`/api/files/${goneFile['id']}`), 200);
    expect(await childNames(client, id)).toEqual(['inner']);
  });

  test('of a recycled directory shows its children as recycled', async () => {
    const id = await freshDirectory();
    await client.makeDirectory('d', id);
    await client.putFile('f', 'x', { directory: id });
    const { json: entry } = expectStatus(await client.delete(`/api/directories/${id}`), 200);
    const { json } = expectStatus(await client.get(listOf(id)), 200);
    expect(json['directory']).toEqual(entry);
    const times = { state: 'recycled', deleted_at: entry['deleted_at'], purge_at: entry['purge_at'] };
    expect(json['items']).toEqual([
      expect.objectContaining({ name: 'd', ...times }),
      expect.objectContaining({ name: 'f', ...times }),
    ]);
  });

  test.each([
    'sort=nothing',
    'sort=',
    'sort=Name',
    'order=down',
    'order=',
    'kind=link',
    'kind=',
    'sort=name&sort=size',
    'sort[]=name',
    'page=2',
    'offset=5',
  ])('refuses ?%s', async (query) => {
    expectProblem(await client.get(listOf('root', `?${query}`)), 400, 'validation_failed');
  });
});

describe('the order', () => {
  const directoryNames = ['zebra', 'Alpha', 'beta', '10', '9', 'é', 'z', '_', '中', '\u{1f600}', '\uffee'];
  const files: readonly { name: string; size: number }[] = [
    { name: 'm', size: 5 },
    { name: 'B', size: 0 },
    { name: 'a', size: 5 },
    { name: 'ä', size: 100 },
    { name: '\u{1f601}', size: 5 },
    { name: '\uffed', size: 1 },
    { name: '2', size: 30 },
  ];
  let id: string;
  let made: Json[];

  beforeAll(async () => {
    id = await freshDirectory();
    made = [];
    for (const { name, size } of files) made.push(await client.putFile(name, 'x'.repeat(size), { directory: id }));
    for (const name of directoryNames) made.push(await client.makeDirectory(name, id));
    for (const name of ['B', 'zebra', 'a', '10']) {
      const one = at(
        made.filter((node) => node['name'] === name),
        0,
      );
      const path = `/api/${one['kind'] === 'file' ? 'files' : 'directories'}/${one['id']}/rename`;
      expectStatus(await client.post(path, { name: `${name}.` }), 200);
      made[made.indexOf(one)] = expectStatus(await client.post(path, { name }), 200).json;
    }
  });

  const expected = (kind: string, compare: (a: Json, b: Json) => number, sign: number): string[] =>
    namesOf(made.filter((node) => node['kind'] === kind).toSorted((a, b) => sign * compare(a, b)));
  const byName = (a: Json, b: Json): number => byBytes(a['name'], b['name']);
  const byId = (a: Json, b: Json): number => byBytes(a['id'], b['id']);
  const by =
    (field: string) =>
    (a: Json, b: Json): number =>
      a[field] < b[field] ? -1 : a[field] > b[field] ? 1 : byId(a, b);

  test('is directories first, then files, each by name, where nothing is said', async () => {
    expect(await childNames(client, id)).toEqual([...expected('directory', byName, 1), ...expected('file', byName, 1)]);
  });

  const sorts = [
    { sort: 'name', directories: byName, files: byName },
    { sort: 'created_at', directories: by('created_at'), files: by('created_at') },
    { sort: 'updated_at', directories: by('updated_at'), files: by('updated_at') },
    { sort: 'size', directories: byName, files: by('size') },
  ];
  const orders = sorts.flatMap((sort) => ['asc', 'desc'].map((order) => ({ ...sort, order })));

  test.each(orders)(
    'by $sort $order holds over all pages, directories first, and for each kind alone',
    async (wanted) => {
      const sign = wanted.order === 'asc' ? 1 : -1;
      const directories = expected('directory', wanted.directories, sign);
      const filesInOrder = expected('file', wanted.files, sign);
      const query = `?sort=${wanted.sort}&order=${wanted.order}`;
      for (const limit of [1, 2, 7, directories.length, 1000]) {
        const { items, pages } = await readPages(client, listOf(id, `${query}&limit=${limit}`));
        expect(namesOf(items)).toEqual([...directories, ...filesInOrder]);
        expect(pages.map((page) => page.length)).toEqual(pageLengths(items.length, limit));
      }
      expect(namesOf((await readPages(client, listOf(id, `${query}&kind=directory&limit=3`))).items)).toEqual(
        directories,
      );
      expect(namesOf((await readPages(client, listOf(id, `${query}&kind=file&limit=3`))).items)).toEqual(filesInOrder);
    },
  );
});

/** Full pages and a rest: never an empty one at the end. */
function pageLengths(total: number, limit: number): number[] {
  const full = Array.from({ length: Math.floor(total / limit) }, () => limit);
  return total % limit === 0 ? full : [...full, total % limit];
}

describe('pages', () => {
  const total = 1_003;
  let id: string;
  let all: string[];

  beforeAll(async () => {
    id = await freshDirectory();
    all = Array.from({ length: total }, (_, n) => `n${String(n).padStart(4, '0')}`);
    await inBatches(all.toReversed(), (name) => client.makeDirectory(name, id), 20);
  });

  test.each([1000, 999, 100, 502])('of %d hold all, once, in order', async (limit) => {
    const { items, pages } = await readPages(client, listOf(id, `?limit=${limit}`));
    expect(namesOf(items)).toEqual(all);
    expect(pages.map((page) => page.length)).toEqual(pageLengths(total, limit));
  });

  test('have 100 rows where nothing is said', async () => {
    const { json } = expectStatus(await client.get(listOf(id)), 200);
    expect(namesOf(json['items'])).toEqual(all.slice(0, 100));
    expect(json['next_cursor']).toEqual(expect.any(String));
  });

  test('can change their size on the way', async () => {
    const first = expectStatus(await client.get(listOf(id, '?limit=10')), 200).json;
    const second = expectStatus(await client.get(listOf(id, `?limit=50&cursor=${first['next_cursor']}`)), 200).json;
    expect(namesOf(second['items'])).toEqual(all.slice(10, 60));
  });

  test('answer the same cursor the same way again', async () => {
    const { next_cursor: cursor } = expectStatus(await client.get(listOf(id, '?limit=7')), 200).json;
    const read = async (): Promise<string[]> =>
      namesOf((await client.get(listOf(id, `?limit=7&cursor=${cursor}`))).json['items']);
    expect(await read()).toEqual(all.slice(7, 14));
    expect(await read()).toEqual(all.slice(7, 14));
  });

  test('refuse the cursor of another sort or order', async () => {
    const cursors: Record<string, string> = {};
    for (const sort of ['name', 'created_at', 'updated_at', 'size']) {
      for (const order of ['asc', 'desc']) {
        const query = `?sort=${sort}&order=${order}&limit=1`;
        cursors[query] = expectStatus(await client.get(listOf(id, query)), 200).json['next_cursor'];
      }
    }
    const wrong: string[] = [];
    for (const [made, cursor] of Object.entries(cursors)) {
      for (const query of Object.keys(cursors)) {
        const answer = await client.get(listOf(id, `${query}&cursor=${encodeURIComponent(cursor)}`));
        if (query === made) expectStatus(answer, 200);
        else if (answer.status !== 400 || pointersOf(answer.json)[0] !== '?cursor')
          wrong.push(`${made} in ${query}: ${answer.status}`);
      }
    }
    expect(wrong).toEqual([]);
    const bin = await client.get(`/api/files/recycle-bin?cursor=${encodeURIComponent(at(Object.values(cursors), 0))}`);
    expectProblem(bin, 400, 'validation_failed');
  });
});

describe('while rows come and go', () => {
  const orders = [
    'sort=name',
    'sort=name&order=desc',
    'sort=created_at',
    'sort=created_at&order=desc',
    'sort=size',
    'sort=size&order=desc',
  ];

  test.each(orders)('%s skips and repeats none of the others', async (order) => {
    const id = await freshDirectory();
    const kept = ['k00', 'k02', 'k04', 'k06', 'k08', 'k10', 'k12', 'k14', 'k16', 'k18'];
    const passing = ['k01', 'k03', 'k05', 'k07', 'k09', 'k11', 'k13', 'k15', 'k17'];
    const names = [...kept, ...passing].sort();
    const made = new Map<string, string>();
    for (const [n, name] of names.entries()) {
      // Half of them are of one size, so that ties are walked over too.
      const file = await client.putFile(name, 'x'.repeat(n % 2 === 0 ? 3 : n), { directory: id });
      made.set(name, file['id']);
      made.set(`d${name}`, (await client.makeDirectory(`d${name}`, id))['id']);
    }
    const { items } = await readPages(client, listOf(id, `?${order}&limit=3`), async (page, number) => {
      // The row that the cursor stands on goes away, one before it, one behind it; others come on all sides.
      const last: string = at(page, -1)['name'];
      const bare = last.replace(/^d/, '');
      const doomed = [passing.includes(bare) ? bare : null, passing.shift(), passing.pop()];
      for (const name of doomed) {
        if (!name) continue;
        if (passing.includes(name)) passing.splice(passing.indexOf(name), 1);
        for (const [path, key] of [
          ['files', name],
          ['directories', `d${name}`],
        ]) {
          await client.delete(`/api/${path}/${made.get(key ?? '') ?? ''}`);
        }
      }
      // In the order of creation new rows come at the end: without an end to them the walk would have none.
      if (number > 6) return;
      for (const name of [`a${number}`, `k05x${number}`, `k13x${number}`, `z${number}`]) {
        await client.makeDirectory(name, id);
        await client.putFile(`f${name}`, 'xxx', { directory: id });
      }
    });
    const seen = namesOf(items);
    expect(new Set(seen).size).toBe(seen.length);
    const all = [...kept, ...kept.map((name) => `d${name}`)];
    expect(seen.filter((name) => all.includes(name)).sort()).toEqual(all.sort());
  });

  test('the directory itself may be renamed and moved between two pages', async () => {
    const [id, target] = [await freshDirectory(), await freshDirectory()];
    const names = ['a', 'b', 'c', 'd', 'e'];
    for (const name of names) await client.makeDirectory(name, id);
    const { items } = await readPages(client, listOf(id, '?limit=2'), async () => {
      expectStatus(await client.post(`/api/directories/${id}/move`, { parent_id: target, name: uniqueName() }), 200);
    });
    expect(namesOf(items)).toEqual(names);
  });
});
