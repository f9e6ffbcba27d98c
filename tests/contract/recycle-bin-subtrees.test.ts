import { beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { expectStatus } from '@stowage/tests/support/client';
import type { Answer, Client, Json } from '@stowage/tests/support/client';
import { admin } from '@stowage/tests/support/contract';
import { expectProblem } from '@stowage/tests/support/problems';
import { uniqueName } from '@stowage/tests/support/system';
import { childNames, expectDirectory, expectFile, readDirectory, readFile } from '@stowage/tests/support/tree';
import { completeUpload, contentOf, createUpload, finalize } from '@stowage/tests/support/uploads';

let client: Client;
let home: string;

/** A directory with a directory and a file in it, and one of each below that. */
interface Subtree {
  top: Json;
  inner: Json;
  file: Json;
  innermost: Json;
  deepFile: Json;
}

let tree: Subtree;

beforeAll(async () => {
  client = await admin();
  home = (await client.makeDirectory(uniqueName('subtrees')))['id'];
});

beforeEach(async () => {
  const top = await client.makeDirectory(uniqueName('top'), home);
  const inner = await client.makeDirectory('inner', top['id']);
  tree = {
    top,
    inner,
    file: await client.putFile('file.txt', 'upper', { directory: top['id'] }),
    innermost: await client.makeDirectory('innermost', inner['id']),
    deepFile: await client.putFile('deep.txt', 'deep', { directory: inner['id'] }),
  };
});

const pathOf = (node: Json): string => `/api/${node['kind'] === 'file' ? 'files' : 'directories'}/${node['id']}`;
const recycle = (node: Json): Promise<Answer> => client.delete(pathOf(node));
const restore = (node: Json, body: Json = {}): Promise<Answer> => client.post(`${pathOf(node)}/restore`, body);
const purge = (node: Json): Promise<Answer> => client.delete(`${pathOf(node)}?permanent=true`);
const read = (node: Json): Promise<Json> =>
  node['kind'] === 'file' ? readFile(client, node['id']) : readDirectory(client, node['id']);

async function stateOf(node: Json): Promise<string> {
  return (await read(node))['state'];
}

/** Those of the nodes that have an entry of their own in the bin. */
async function entriesAmong(nodes: readonly Json[]): Promise<string[]> {
  const { items } = expectStatus(await client.get('/api/files/recycle-bin?limit=1000'), 200).json;
  const ids = new Set(items.map((item: Json) => item['id']));
  return nodes.filter((node) => ids.has(node['id'])).map((node) => node['name']);
}

function all({ top, inner, file, innermost, deepFile }: Subtree): Json[] {
  return [top, inner, file, innermost, deepFile];
}

describe('a directory in the bin', () => {
  test('is one entry; what lies below reads as recycled, with its times, and keeps its version', async () => {
    const { json: entry } = expectStatus(await recycle(tree.top), 200);
    expect(await entriesAmong(all(tree))).toEqual([tree.top['name']]);
    const times = { state: 'recycled', deleted_at: entry['deleted_at'], purge_at: entry['purge_at'] };
    for (const directory of [tree.inner, tree.innermost])
      expectDirectory(await read(directory), { ...directory, ...times });
    for (const file of [tree.file, tree.deepFile]) {
      const { placement, ...json } = await read(file);
      expectFile(json, { ...file, ...times });
      expect(placement).toMatchObject({ state: 'satisfied' });
    }
  });

  test('closes what lies below at once: content and changes are 409 (T46)', async () => {
    expectStatus(await recycle(tree.top), 200);
    const other = await client.makeDirectory(uniqueName('other'), home);
    for (const node of [tree.inner, tree.file, tree.innermost, tree.deepFile]) {
      const place = node['kind'] === 'file' ? { directory_id: other['id'] } : { parent_id: other['id'] };
      expectProblem(await client.post(`${pathOf(node)}/rename`, { name: uniqueName() }), 409, 'state_conflict');
      expectProblem(await client.post(`${pathOf(node)}/move`, place), 409, 'state_conflict');
      expectProblem(await recycle(node), 409, 'state_conflict');
      expectProblem(await restore(node), 409, 'state_conflict');
      expectProblem(await restore(node, { directory_id: other['id'] }), 409, 'state_conflict');
      expectProblem(await purge(node), 409, 'state_conflict');
    }
    for (const file of [tree.file, tree.deepFile]) {
      for (const view of ['download', 'stream', 'preview']) {
        expectProblem(await client.get(`${pathOf(file)}/${view}`), 409, 'state_conflict');
      }
    }
    expect(await stateOf(tree.deepFile)).toBe('recycled');
  });

  test('takes nothing in: no directory, no file, no upload, nothing restored', async () => {
    const upload = await completeUpload(client, Buffer.from('late'), {
      filename: 'late',
      directory_id: tree.inner['id'],
    });
    const [moving, movingFile] = [
      await client.makeDirectory(uniqueName(), home),
      await client.putFile(uniqueName(), 'x', { directory: home }),
    ];
    const gone = await client.putFile(uniqueName(), 'x', { directory: home });
    expectStatus(await recycle(gone), 200);
    expectStatus(await recycle(tree.top), 200);
    for (const target of [tree.top['id'], tree.inner['id']]) {
      expectProblem(
        await client.post('/api/directories', { parent_id: target, name: uniqueName() }),
        409,
        'state_conflict',
      );
      expectProblem(await client.post(`${pathOf(moving)}/move`, { parent_id: target }), 409, 'state_conflict');
      expectProblem(await client.post(`${pathOf(movingFile)}/move`, { directory_id: target }), 409, 'state_conflict');
      expectProblem(await restore(gone, { directory_id: target }), 409, 'parent_missing');
      const early = await createUpload(client, { length: 1, metadata: { filename: 'x', directory_id: target } });
      expectProblem(early, 409, 'state_conflict');
    }
    expectProblem(await finalize(client, upload), 409, 'state_conflict');
    expectStatus(await restore(tree.top), 200);
    expectStatus(await finalize(client, upload), 201);
  });

  test('comes back with all that went with it', async () => {
    expectStatus(await recycle(tree.top), 200);
    expectStatus(await restore(tree.top), 200);
    for (const node of [tree.inner, tree.innermost]) expect(await read(node)).toEqual(node);
    for (const file of [tree.file, tree.deepFile]) expect(await read(file)).toMatchObject(file);
    expect((await contentOf(client, tree.deepFile['id'])).toString()).toBe('deep');
    expect(await entriesAmong(all(tree))).toEqual([]);
  });

  test('comes back to another place with all that went with it', async () => {
    const target = await client.makeDirectory(uniqueName('target'), home);
    expectStatus(await recycle(tree.top), 200);
    const { json } = expectStatus(await restore(tree.top, { parent_id: target['id'], name: 'elsewhere' }), 200);
    expect(json['path']).toBe(`${target['path']}/elsewhere`);
    expect((await read(tree.deepFile))['path']).toBe(`${target['path']}/elsewhere/inner/deep.txt`);
  });

  test('does not come back into itself or what lies below it', async () => {
    expectStatus(await recycle(tree.top), 200);
    for (const target of [tree.top['id'], tree.inner['id'], tree.innermost['id']]) {
      const answer = await restore(tree.top, { parent_id: target });
      expect([answer.status, ['parent_missing', 'cycle'].includes(answer.json['code'])]).toEqual([409, true]);
    }
    expect(await stateOf(tree.top)).toBe('recycled');
  });
});

describe('what was recycled before its directory', () => {
  test('keeps its own entry with its own times, and is not revived with the directory', async () => {
    const { json: file } = expectStatus(await recycle(tree.deepFile), 200);
    const { json: inner } = expectStatus(await recycle(tree.innermost), 200);
    expectStatus(await recycle(tree.top), 200);
    expect((await entriesAmong(all(tree))).sort()).toEqual([tree.top['name'], 'deep.txt', 'innermost'].sort());
    expect(await read(tree.deepFile)).toMatchObject({ deleted_at: file['deleted_at'], purge_at: file['purge_at'] });
    expectStatus(await restore(tree.top), 200);
    expect(await stateOf(tree.inner)).toBe('active');
    expect(await read(tree.innermost)).toEqual(inner);
    expect(await stateOf(tree.deepFile)).toBe('recycled');
    expect((await entriesAmong(all(tree))).sort()).toEqual(['deep.txt', 'innermost']);
    expect(await childNames(client, tree.inner['id'])).toEqual([]);
    expectStatus(await restore(tree.deepFile), 200);
    expectStatus(await restore(tree.innermost), 200);
    expect(await childNames(client, tree.inner['id'])).toEqual(['innermost', 'deep.txt']);
  });

  test('stays in the bin when the directory is removed for good, with all below it', async () => {
    expectStatus(await recycle(tree.inner), 200);
    expectStatus(await recycle(tree.top), 200);
    expectStatus(await purge(tree.top), 204);
    expectProblem(await client.get(pathOf(tree.top)), 404, 'not_found');
    expectProblem(await client.get(pathOf(tree.file)), 404, 'not_found');
    for (const node of [tree.inner, tree.innermost, tree.deepFile]) expect(await stateOf(node)).toBe('recycled');
    expect(await entriesAmong(all(tree))).toEqual(['inner']);
    expectProblem(await restore(tree.inner), 409, 'parent_missing');
    expectStatus(await restore(tree.inner, { parent_id: home, name: uniqueName('saved') }), 200);
    expect((await contentOf(client, tree.deepFile['id'])).toString()).toBe('deep');
    expect(await stateOf(tree.innermost)).toBe('active');
  });

  test('stays in the bin even when the job has deleted the rows of its directory', async () => {
    expectStatus(await recycle(tree.deepFile), 200);
    expectStatus(await recycle(tree.top), 200);
    expectStatus(await purge(tree.top), 204);
    const { json: run } = expectStatus(
      await client.post('/api/jobs/run-pending', { kinds: ['purge_recycle_bin'], wait_seconds: 20 }),
      200,
    );
    expect(run).toMatchObject({ failed: 0, running: 0 });
    expect(await read(tree.deepFile)).toMatchObject({ state: 'recycled', name: 'deep.txt' });
    expectProblem(await restore(tree.deepFile), 409, 'parent_missing');
    expectStatus(await restore(tree.deepFile, { directory_id: home, name: uniqueName() }), 200);
    expect((await contentOf(client, tree.deepFile['id'])).toString()).toBe('deep');
  });
});

describe('a directory removed for good', () => {
  test('takes all below it: every one is 404 at once', async () => {
    expectStatus(await recycle(tree.top), 200);
    expectStatus(await purge(tree.top), 204);
    for (const node of all(tree)) {
      expectProblem(await client.get(pathOf(node)), 404, 'not_found');
      expectProblem(await restore(node, { directory_id: home }), 404, 'not_found');
    }
    expectProblem(await client.get(`${pathOf(tree.deepFile)}/download`), 404, 'not_found');
    expectProblem(await client.get(`${pathOf(tree.inner)}/children`), 404, 'not_found');
    expectProblem(await client.post('/api/directories', { parent_id: tree.inner['id'], name: 'x' }), 404, 'not_found');
    const upload = await completeUpload(client, Buffer.from('x'), { filename: 'x', directory_id: home });
    expectProblem(await finalize(client, upload, { directory_id: tree.inner['id'] }), 404, 'not_found');
  });

  test('leaves what was moved out of it before', async () => {
    expectStatus(await client.post(`${pathOf(tree.deepFile)}/move`, { directory_id: home, name: uniqueName() }), 200);
    expectStatus(await recycle(tree.top), 200);
    expectStatus(await purge(tree.top), 204);
    expect(await stateOf(tree.deepFile)).toBe('active');
    expect((await contentOf(client, tree.deepFile['id'])).toString()).toBe('deep');
  });
});
