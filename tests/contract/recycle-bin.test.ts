import { beforeAll, describe, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { expectStatus, logInAs } from '@stowage/tests/support/client';
import type { Answer, Client, Json } from '@stowage/tests/support/client';
import { admin } from '@stowage/tests/support/contract';
import { expectProblem } from '@stowage/tests/support/problems';
import { unknownId } from '@stowage/tests/support/routes';
import { uniqueName } from '@stowage/tests/support/system';
import {
  at,
  childNames,
  expectDirectory,
  expectEtag,
  expectFile,
  readDirectory,
  readFile,
} from '@stowage/tests/support/tree';
import { contentOf } from '@stowage/tests/support/uploads';

const thirtyDays = 30 * 24 * 60 * 60 * 1000;
let client: Client;
let home: string;

beforeAll(async () => {
  client = await admin();
  home = (await client.makeDirectory(uniqueName('bin')))['id'];
});

/** The two kinds of entries, and what differs between them. */
const kinds = [
  {
    kind: 'directory',
    base: '/api/directories',
    parentField: 'parent_id',
    make: (name = uniqueName(), parent = home) => client.makeDirectory(name, parent),
    read: (id: string) => readDirectory(client, id),
    expectWhole: expectDirectory,
  },
  {
    kind: 'file',
    base: '/api/files',
    parentField: 'directory_id',
    make: (name = uniqueName(), parent = home) => client.putFile(name, 'content', { directory: parent }),
    read: async (id: string): Promise<Json> => {
      const { placement: _placement, ...file } = await readFile(client, id);
      return file;
    },
    expectWhole: expectFile,
  },
];

/** The entry of a node in the first 1,000 of the bin. */
async function entryOf(id: string): Promise<Json | undefined> {
  const { items } = expectStatus(await client.get('/api/files/recycle-bin?limit=1000'), 200).json;
  return items.find((item: Json) => item['id'] === id);
}

describe.each(kinds)('a $kind', ({ kind, base, parentField, make, read, expectWhole }) => {
  const recycle = (id: string): Promise<Answer> => client.delete(`${base}/${id}`);
  const restore = (id: string, body: Json = {}): Promise<Answer> => client.post(`${base}/${id}/restore`, body);
  const purge = (id: string): Promise<Answer> => client.delete(`${base}/${id}?permanent=true`);

  test('goes into the bin whole, for 30 days', async () => {
    const made = await make();
    const answer = expectStatus(await recycle(made['id']), 200);
    const { version, updated_at: updatedAt, deleted_at: deletedAt, purge_at: purgeAt } = answer.json;
    const changes = { state: 'recycled', version, updated_at: updatedAt, deleted_at: deletedAt, purge_at: purgeAt };
    expectWhole(answer.json, { ...made, ...changes });
    expectEtag(answer);
    expect(version).toBeGreaterThan(made['version']);
    expect(Date.parse(purgeAt) - Date.parse(deletedAt)).toBe(thirtyDays);
    expect(Math.abs(Date.parse(deletedAt) - Date.now())).toBeLessThan(10_000);
    expect(await read(made['id'])).toEqual(answer.json);
    expect(await entryOf(made['id'])).toEqual(answer.json);
    expect(await childNames(client, home)).not.toContain(made['name']);
  });

  test('deleted again gives the same answer', async () => {
    const made = await make();
    const first = expectStatus(await recycle(made['id']), 200);
    for (let n = 0; n < 3; n += 1) {
      const again = expectStatus(await recycle(made['id']), 200);
      expect(again.json).toEqual(first.json);
      expect(again.headers.get('etag')).toBe(first.headers.get('etag'));
    }
  });

  test('deleted by many at one moment gives one answer', async () => {
    const made = await make();
    const answers = await Promise.all(Array.from({ length: 6 }, () => recycle(made['id'])));
    const [first, ...others] = answers.map((answer) => expectStatus(answer, 200).json);
    for (const other of others) expect(other).toEqual(first);
  });

  test('in the bin can be neither renamed nor moved', async () => {
    const made = await make();
    const { json: recycled } = expectStatus(await recycle(made['id']), 200);
    expectProblem(await client.post(`${base}/${made['id']}/rename`, { name: uniqueName() }), 409, 'state_conflict');
    expectProblem(await client.post(`${base}/${made['id']}/move`, { [parentField]: 'root' }), 409, 'state_conflict');
    expect(await read(made['id'])).toEqual(recycled);
  });

  test('comes back to its old place as it was', async () => {
    const made = await make();
    expectStatus(await recycle(made['id']), 200);
    const answer = expectStatus(await restore(made['id']), 200);
    const { version, updated_at: updatedAt } = answer.json;
    expectWhole(answer.json, { ...made, version, updated_at: updatedAt });
    expectEtag(answer);
    expect(version).toBeGreaterThan(made['version'] + 1);
    expect(await read(made['id'])).toEqual(answer.json);
    expect(await entryOf(made['id'])).toBeUndefined();
    expect(await childNames(client, home)).toContain(made['name']);
  });

  test('comes back to another place, under another name', async () => {
    const [made, target] = [await make(), await client.makeDirectory(uniqueName('target'), home)];
    expectStatus(await recycle(made['id']), 200);
    const name = uniqueName('back');
    const body = { [kind === 'file' ? 'directory_id' : 'parent_id']: target['id'], name };
    const { json } = expectStatus(await restore(made['id'], body), 200);
    expect(json).toMatchObject({
      [parentField]: target['id'],
      name,
      state: 'active',
      path: `${target['path']}/${name}`,
    });
  });

  test('takes the target as directory_id, and refuses unknown fields', async () => {
    const [made, target] = [await make(), await client.makeDirectory(uniqueName('target'), home)];
    expectStatus(await recycle(made['id']), 200);
    expectProblem(await restore(made['id'], { to: target['id'] }), 400, 'validation_failed');
    expectProblem(await restore(made['id'], { directory_id: null }), 400, 'validation_failed');
    const { json } = expectStatus(await restore(made['id'], { directory_id: target['id'] }), 200);
    expect(json[parentField]).toBe(target['id']);
  });

  test('does not come back over what took its name meanwhile (T65)', async () => {
    const made = await make();
    expectStatus(await recycle(made['id']), 200);
    const other = await client.putFile(made['name'], 'the other', { directory: home });
    const problem = expectProblem(await restore(made['id']), 409, 'name_conflict');
    expect(problem['conflicting_id']).toBe(other['id']);
    expect((await read(made['id']))['state']).toBe('recycled');
    expect(await contentOf(client, other['id'])).toEqual(Buffer.from('the other'));
    const { json } = expectStatus(await restore(made['id'], { on_conflict: 'rename' }), 200);
    expect(json['name']).toBe(`${made['name']} (2)`);
    expect((await readFile(client, other['id']))['name']).toBe(made['name']);
  });

  test('whose directory is in the bin comes back only to another place (T65)', async () => {
    const parent = await client.makeDirectory(uniqueName('parent'), home);
    const made = await make(uniqueName(), parent['id']);
    expectStatus(await recycle(made['id']), 200);
    expectStatus(await client.delete(`/api/directories/${parent['id']}`), 200);
    expectProblem(await restore(made['id']), 409, 'parent_missing');
    expectProblem(await restore(made['id'], { name: uniqueName() }), 409, 'parent_missing');
    expectProblem(await restore(made['id'], { directory_id: parent['id'] }), 409, 'parent_missing');
    expect((await read(made['id']))['state']).toBe('recycled');
    expect(expectStatus(await restore(made['id'], { directory_id: home }), 200).json[parentField]).toBe(home);
  });

  test('whose directory was removed for good comes back only to another place (T65)', async () => {
    const parent = await client.makeDirectory(uniqueName('parent'), home);
    const made = await make(uniqueName(), parent['id']);
    expectStatus(await recycle(made['id']), 200);
    expectStatus(await client.delete(`/api/directories/${parent['id']}`), 200);
    expectStatus(await client.delete(`/api/directories/${parent['id']}?permanent=true`), 204);
    expectProblem(await restore(made['id']), 409, 'parent_missing');
    expect(await read(made['id'])).toMatchObject({ state: 'recycled', name: made['name'] });
    expect(await entryOf(made['id'])).toMatchObject({ id: made['id'] });
    expect(expectStatus(await restore(made['id'], { directory_id: home }), 200).json).toMatchObject({
      [parentField]: home,
      state: 'active',
    });
  });

  test('does not come back into nothing, or into a file', async () => {
    const made = await make();
    const file = await client.putFile(uniqueName(), 'x', { directory: home });
    expectStatus(await recycle(made['id']), 200);
    expectProblem(await restore(made['id'], { directory_id: unknownId }), 404, 'not_found');
    expectProblem(await restore(made['id'], { directory_id: file['id'] }), 404, 'not_found');
  });

  test('that is not in the bin can be neither restored nor removed for good', async () => {
    const made = await make();
    expectProblem(await restore(made['id']), 409, 'state_conflict');
    expectProblem(await purge(made['id']), 409, 'state_conflict');
    expect(await read(made['id'])).toEqual(made);
    expectStatus(await recycle(made['id']), 200);
    expectStatus(await restore(made['id']), 200);
    expectProblem(await restore(made['id']), 409, 'state_conflict');
  });

  test('removed for good is gone: 204, then 404 for everything', async () => {
    const made = await make();
    expectStatus(await recycle(made['id']), 200);
    const answer = expectStatus(await purge(made['id']), 204);
    expect(answer.bytes).toHaveLength(0);
    for (const gone of [
      await client.get(`${base}/${made['id']}`),
      await recycle(made['id']),
      await restore(made['id']),
      await purge(made['id']),
      await client.post(`${base}/${made['id']}/rename`, { name: uniqueName() }),
    ]) {
      expectProblem(gone, 404, 'not_found');
    }
    expect(await entryOf(made['id'])).toBeUndefined();
    expect((await make(made['name']))['id']).not.toBe(made['id']);
  });

  test('restored and removed at one moment is the one or the other', async () => {
    for (let round = 0; round < 6; round += 1) {
      const made = await make();
      expectStatus(await recycle(made['id']), 200);
      const [restored, purged] = await Promise.all([restore(made['id']), purge(made['id'])]);
      const now = await client.get(`${base}/${made['id']}`);
      if (purged.status === 204) {
        expectProblem(restored, 404, 'not_found');
        expect(now.status).toBe(404);
      } else {
        expectProblem(purged, 409, 'state_conflict');
        expectStatus(restored, 200);
        expect(now.json['state']).toBe('active');
      }
    }
  });

  test.each(['yes', '1', '', 'TRUE', 'null'])('takes no permanent=%s for a yes', async (permanent) => {
    const made = await make();
    expectStatus(await recycle(made['id']), 200);
    const answer = await client.delete(`${base}/${made['id']}?permanent=${permanent}`);
    if (answer.status !== 200) expectProblem(answer, 400, 'validation_failed');
    expect((await read(made['id']))['state']).toBe('recycled');
  });
});

describe('a file in the bin', () => {
  test('gives away no content, and all of it again when it is back (T46)', async () => {
    const bytes = randomBytes(3_000);
    const made = await client.putFile(`${uniqueName()}.txt`, bytes, { directory: home });
    expectStatus(await client.delete(`/api/files/${made['id']}`), 200);
    for (const view of ['download', 'stream', 'preview']) {
      expectProblem(await client.get(`/api/files/${made['id']}/${view}`), 409, 'state_conflict');
      expectProblem(
        await client.get(`/api/files/${made['id']}/${view}`, { range: 'bytes=0-0' }),
        409,
        'state_conflict',
      );
    }
    const tag = `"${made['sha256']}"`;
    expectProblem(
      await client.get(`/api/files/${made['id']}/download`, { 'if-none-match': tag }),
      409,
      'state_conflict',
    );
    expect((await client.call('HEAD', `/api/files/${made['id']}/download`)).status).toBe(409);
    expect((await readFile(client, made['id']))['placement']).toMatchObject({ state: 'satisfied' });
    expectStatus(await client.post(`/api/files/${made['id']}/restore`), 200);
    expect(await contentOf(client, made['id'])).toEqual(bytes);
  });

  test('two of one name can be in the bin', async () => {
    const name = uniqueName('twice');
    const made: Json[] = [];
    for (const content of ['one', 'two']) {
      const file = await client.putFile(name, content, { directory: home });
      expectStatus(await client.delete(`/api/files/${file['id']}`), 200);
      made.push(file);
    }
    expectStatus(await client.post(`/api/files/${at(made, 0)['id']}/restore`), 200);
    expectProblem(await client.post(`/api/files/${at(made, 1)['id']}/restore`), 409, 'name_conflict');
    expect((await contentOf(client, at(made, 0)['id'])).toString()).toBe('one');
  });
});

test('a viewer reads the bin and changes nothing; an editor may not empty it', async () => {
  const [viewer, editor] = [
    await logInAs(client, 'viewer', uniqueName('viewer')),
    await logInAs(client, 'editor', uniqueName('editor')),
  ];
  const made = await client.putFile(uniqueName(), 'x', { directory: home });
  expectStatus(await editor.delete(`/api/files/${made['id']}`), 200);
  expectStatus(await viewer.get('/api/files/recycle-bin'), 200);
  expectProblem(await viewer.post(`/api/files/${made['id']}/restore`), 403, 'forbidden');
  expectProblem(await viewer.delete(`/api/files/${made['id']}?permanent=true`), 403, 'forbidden');
  expectProblem(await viewer.delete('/api/files/recycle-bin'), 403, 'forbidden');
  expectProblem(await editor.delete('/api/files/recycle-bin'), 403, 'forbidden');
  expect((await readFile(client, made['id']))['state']).toBe('recycled');
});
