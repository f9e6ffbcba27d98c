import { beforeAll, describe, expect, test } from '@jest/globals';
import { expectStatus } from '@stowage/tests/support/client';
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
  makeChain,
  readDirectory,
  readFile,
} from '@stowage/tests/support/tree';

let client: Client;
let home: string;
let homePath: string;
let rootId: string;

beforeAll(async () => {
  client = await admin();
  const made = await client.makeDirectory(uniqueName('directories'));
  [home, homePath] = [made['id'], made['path']];
  rootId = (await readDirectory(client, 'root'))['id'];
});

function create(body: Json): Promise<Answer> {
  return client.post('/api/directories', body);
}

function rename(id: string, body: Json): Promise<Answer> {
  return client.post(`/api/directories/${id}/rename`, body);
}

function move(id: string, body: Json): Promise<Answer> {
  return client.post(`/api/directories/${id}/move`, body);
}

describe('the root', () => {
  test('is a directory like any other, with no parent', async () => {
    const answer = expectStatus(await client.get('/api/directories/root'), 200);
    expectDirectory(answer.json, { parent_id: null, path: '/', name: expect.any(String), version: expect.any(Number) });
    expectEtag(answer);
    const byId = expectStatus(await client.get(`/api/directories/${rootId}`), 200);
    expect(byId.json['id']).toBe(rootId);
    expect(byId.json['parent_id']).toBeNull();
  });

  test('goes by its alias wherever a directory id is', async () => {
    expect((await client.get('/api/directories/root/children?limit=1')).json['directory']['id']).toBe(rootId);
    const made = expectStatus(await create({ parent_id: 'root', name: uniqueName('alias') }), 201).json;
    expectDirectory(made, { parent_id: rootId, path: `/${made['name']}` });
    const inner = await client.makeDirectory(uniqueName('alias'), home);
    expect(expectStatus(await move(inner['id'], { parent_id: 'root' }), 200).json['parent_id']).toBe(rootId);
    expectStatus(await client.delete(`/api/directories/${inner['id']}`), 200);
    const restored = expectStatus(
      await client.post(`/api/directories/${inner['id']}/restore`, { parent_id: 'root' }),
      200,
    );
    expect(restored.json['parent_id']).toBe(rootId);
    const file = await client.putFile(uniqueName('alias'), 'x', { directory: 'root' });
    expect(file['directory_id']).toBe(rootId);
    expectStatus(await client.post(`/api/files/${file['id']}/move`, { directory_id: home }), 200);
    const back = expectStatus(await client.post(`/api/files/${file['id']}/move`, { directory_id: 'root' }), 200);
    expect(back.json).toMatchObject({ directory_id: rootId, path: `/${file['name']}` });
    expectStatus(await client.delete(`/api/files/${file['id']}`), 200);
    expectStatus(await client.post(`/api/files/${file['id']}/restore`, { directory_id: 'root' }), 200);
  });

  test('is the parent where none is named', async () => {
    const made = expectStatus(await create({ name: uniqueName('no-parent') }), 201).json;
    expectDirectory(made, { parent_id: rootId });
  });

  test.each(['ROOT', 'Root', 'root ', '/', ''])('is not called %j', async (alias) => {
    expectProblem(await create({ parent_id: alias, name: uniqueName() }), 400, 'validation_failed');
    expect((await client.get(`/api/directories/${encodeURIComponent(alias)}`)).status).toBe(404);
  });

  test.each<[string, (id: string) => Promise<Answer>]>([
    ['renamed', (id) => rename(id, { name: uniqueName() })],
    ['moved', (id) => move(id, { parent_id: home })],
    ['moved into itself', (id) => move(id, { parent_id: 'root' })],
    ['recycled', (id) => client.delete(`/api/directories/${id}`)],
    ['removed for good', (id) => client.delete(`/api/directories/${id}?permanent=true`)],
    ['restored', (id) => client.post(`/api/directories/${id}/restore`)],
  ])('can not be %s', async (_what, change) => {
    const before = await readDirectory(client, 'root');
    expectProblem(await change('root'), 409, 'state_conflict');
    expectProblem(await change(rootId), 409, 'state_conflict');
    expect(await readDirectory(client, 'root')).toEqual(before);
  });
});

describe('making a directory', () => {
  test('answers 201 with every field, Location and ETag', async () => {
    const name = uniqueName('made');
    const started = Date.now();
    const answer = expectStatus(await create({ parent_id: home, name }), 201);
    expectDirectory(answer.json, { name, parent_id: home, path: `${homePath}/${name}`, version: 1 });
    expectEtag(answer);
    expect(answer.headers.get('location')).toBe(`/api/directories/${answer.json['id']}`);
    expect(answer.json['created_at']).toBe(answer.json['updated_at']);
    expect(Math.abs(Date.parse(answer.json['created_at']) - started)).toBeLessThan(10_000);
    const read = expectStatus(await client.get(answer.headers.get('location') ?? ''), 200);
    expect(read.json).toEqual(answer.json);
    expectEtag(read);
  });

  test('below a parent that is not there is 404', async () => {
    expectProblem(await create({ parent_id: unknownId, name: uniqueName() }), 404, 'not_found');
  });

  test('below a file is 404', async () => {
    const file = await client.putFile(uniqueName('file'), 'x', { directory: home });
    expectProblem(await create({ parent_id: file['id'], name: uniqueName() }), 404, 'not_found');
  });

  test('under a name that is taken is 409 and names who has it', async () => {
    const name = uniqueName('taken');
    const first = await client.makeDirectory(name, home);
    for (const body of [
      { parent_id: home, name },
      { parent_id: home, name, on_conflict: 'fail' },
    ]) {
      const problem = expectProblem(await create(body), 409, 'name_conflict');
      expect(problem).toMatchObject({ conflicting_id: first['id'], conflicting_kind: 'directory', name });
    }
    expect((await childNames(client, home)).filter((found) => found === name)).toHaveLength(1);
  });

  test('with on_conflict "rename" takes the next free name', async () => {
    const name = uniqueName('again');
    const made: string[] = [];
    for (let n = 0; n < 4; n += 1) {
      made.push(expectStatus(await create({ parent_id: home, name, on_conflict: 'rename' }), 201).json['name']);
    }
    expect(made).toEqual([name, `${name} (2)`, `${name} (3)`, `${name} (4)`]);
  });

  test.each(['replace', '', null, true, 'RENAME'])('refuses on_conflict %j', async (onConflict) => {
    expectProblem(
      await create({ parent_id: home, name: uniqueName(), on_conflict: onConflict }),
      400,
      'validation_failed',
    );
  });

  test('is seen by the next listing and by the next read', async () => {
    for (let n = 0; n < 10; n += 1) {
      const { json } = expectStatus(await create({ parent_id: home, name: uniqueName('seen') }), 201);
      expect(await readDirectory(client, json['id'])).toEqual(json);
      expect(await childNames(client, home, '&kind=directory')).toContain(json['name']);
    }
  });
});

describe('renaming a directory', () => {
  test('changes name, path, version and updated_at and nothing else', async () => {
    const made = await client.makeDirectory(uniqueName('before'), home);
    const name = uniqueName('after');
    const answer = expectStatus(await rename(made['id'], { name }), 200);
    const { version, updated_at: updatedAt } = answer.json;
    expect(answer.json).toEqual({ ...made, name, path: `${homePath}/${name}`, version, updated_at: updatedAt });
    expect(version).toBeGreaterThan(made['version']);
    expect(Date.parse(updatedAt)).toBeGreaterThanOrEqual(Date.parse(made['updated_at']));
    expectEtag(answer);
    expect(await readDirectory(client, made['id'])).toEqual(answer.json);
  });

  test('shows in the path of all that lies below, whose rows stay as they are', async () => {
    const [top, middle, low] = await makeChain(client, home, [uniqueName('top'), 'middle', 'low']);
    const file = await client.putFile('deep.txt', 'x', { directory: low?.['id'] });
    const name = uniqueName('renamed');
    expectStatus(await rename(top?.['id'], { name }), 200);
    expect(await readDirectory(client, low?.['id'])).toEqual({ ...low, path: `${homePath}/${name}/middle/low` });
    expect(await readDirectory(client, middle?.['id'])).toEqual({ ...middle, path: `${homePath}/${name}/middle` });
    const { placement: _placement, ...after } = await readFile(client, file['id']);
    expect(after).toEqual({ ...file, path: `${homePath}/${name}/middle/low/deep.txt` });
  });

  test('to its own name is no clash', async () => {
    const made = await client.makeDirectory(uniqueName('own'), home);
    for (const onConflict of ['fail', 'rename']) {
      const { json } = expectStatus(await rename(made['id'], { name: made['name'], on_conflict: onConflict }), 200);
      expect(json['name']).toBe(made['name']);
    }
  });

  test('to a name that is taken is 409, or the next free name', async () => {
    const [taken, made] = [
      await client.makeDirectory(uniqueName('taken'), home),
      await client.makeDirectory(uniqueName(), home),
    ];
    expectProblem(await rename(made['id'], { name: taken['name'] }), 409, 'name_conflict');
    expect(await readDirectory(client, made['id'])).toEqual(made);
    const { json } = expectStatus(await rename(made['id'], { name: taken['name'], on_conflict: 'rename' }), 200);
    expect(json['name']).toBe(`${taken['name']} (2)`);
  });

  test('what is not there, or is a file, is 404', async () => {
    const file = await client.putFile(uniqueName('file'), 'x', { directory: home });
    for (const id of [unknownId, file['id']]) {
      expectProblem(await rename(id, { name: uniqueName() }), 404, 'not_found');
      expectProblem(await move(id, { parent_id: home }), 404, 'not_found');
      expectProblem(await client.get(`/api/directories/${id}`), 404, 'not_found');
      expectProblem(await client.delete(`/api/directories/${id}`), 404, 'not_found');
      expectProblem(await client.post(`/api/directories/${id}/restore`), 404, 'not_found');
    }
  });

  test('needs a name', async () => {
    const made = await client.makeDirectory(uniqueName(), home);
    expectProblem(await rename(made['id'], {}), 400, 'validation_failed');
    expectProblem(await rename(made['id'], { name: uniqueName(), parent_id: home }), 400, 'validation_failed');
  });
});

describe('moving a directory', () => {
  test('takes all below it along, whose rows stay as they are', async () => {
    const [top, low] = await makeChain(client, home, [uniqueName('move'), 'low']);
    const file = await client.putFile('deep.txt', 'x', { directory: low?.['id'] });
    const target = await client.makeDirectory(uniqueName('target'), home);
    const answer = expectStatus(await move(top?.['id'], { parent_id: target['id'] }), 200);
    const path = `${target['path']}/${top?.['name']}`;
    const { version, updated_at: updatedAt } = answer.json;
    expect(answer.json).toEqual({ ...top, parent_id: target['id'], path, version, updated_at: updatedAt });
    expect(version).toBeGreaterThan(top?.['version']);
    expectEtag(answer);
    expect(await readDirectory(client, low?.['id'])).toEqual({ ...low, path: `${path}/low` });
    const { placement: _placement, ...after } = await readFile(client, file['id']);
    expect(after).toEqual({ ...file, path: `${path}/low/deep.txt` });
    expect(await childNames(client, home)).not.toContain(top?.['name']);
  });

  test('can give it another name on the way', async () => {
    const [made, target] = [
      await client.makeDirectory(uniqueName(), home),
      await client.makeDirectory(uniqueName(), home),
    ];
    const name = uniqueName('on-the-way');
    expect(expectStatus(await move(made['id'], { parent_id: target['id'], name }), 200).json).toMatchObject({
      name,
      parent_id: target['id'],
    });
  });

  test('onto a name that is taken is 409 and moves nothing, or takes the next free name', async () => {
    const [made, target] = [
      await client.makeDirectory(uniqueName('clash'), home),
      await client.makeDirectory(uniqueName(), home),
    ];
    await client.makeDirectory(made['name'], target['id']);
    expectProblem(await move(made['id'], { parent_id: target['id'] }), 409, 'name_conflict');
    expect(await readDirectory(client, made['id'])).toEqual(made);
    const { json } = expectStatus(await move(made['id'], { parent_id: target['id'], on_conflict: 'rename' }), 200);
    expect(json['name']).toBe(`${made['name']} (2)`);
  });

  test('to where it is already is no clash', async () => {
    const made = await client.makeDirectory(uniqueName(), home);
    for (const onConflict of ['fail', 'rename']) {
      const { json } = expectStatus(await move(made['id'], { parent_id: home, on_conflict: onConflict }), 200);
      expect(json).toMatchObject({ name: made['name'], parent_id: home });
    }
  });

  test('under itself or a descendant is 409 cycle', async () => {
    const chain = await makeChain(client, home, [uniqueName('cycle'), 'a', 'b', 'c']);
    const top = at(chain, 0);
    for (const below of chain) {
      expectProblem(await move(top['id'], { parent_id: below['id'] }), 409, 'cycle');
      expectProblem(
        await move(top['id'], { parent_id: below['id'], name: uniqueName(), on_conflict: 'rename' }),
        409,
        'cycle',
      );
    }
    expect(await readDirectory(client, top['id'])).toEqual(top);
  });

  test('into nothing or into a file is 404, without a target 400', async () => {
    const made = await client.makeDirectory(uniqueName(), home);
    const file = await client.putFile(uniqueName('file'), 'x', { directory: home });
    for (const parentId of [unknownId, file['id']]) {
      expectProblem(await move(made['id'], { parent_id: parentId }), 404, 'not_found');
    }
    expectProblem(await move(made['id'], {}), 400, 'validation_failed');
    expectProblem(await move(made['id'], { parent_id: null }), 400, 'validation_failed');
    expectProblem(await move(made['id'], { directory_id: home }), 400, 'validation_failed');
  });
});
