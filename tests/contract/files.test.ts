import { beforeAll, describe, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { expectStatus, sha256 } from '@stowage/tests/support/client';
import type { Answer, Client, Json } from '@stowage/tests/support/client';
import { admin } from '@stowage/tests/support/contract';
import { expectProblem } from '@stowage/tests/support/problems';
import { unknownId } from '@stowage/tests/support/routes';
import { uniqueName } from '@stowage/tests/support/system';
import { at, childNames, expectEtag, expectFile, readFile } from '@stowage/tests/support/tree';
import { contentOf } from '@stowage/tests/support/uploads';

let client: Client;
let home: string;
let homePath: string;

beforeAll(async () => {
  client = await admin();
  const made = await client.makeDirectory(uniqueName('files'));
  [home, homePath] = [made['id'], made['path']];
});

function put(content: Buffer | string = 'x', name = uniqueName('file')): Promise<Json> {
  return client.putFile(name, content, { directory: home });
}

function rename(id: string, body: Json): Promise<Answer> {
  return client.post(`/api/files/${id}/rename`, body);
}

function move(id: string, body: Json): Promise<Answer> {
  return client.post(`/api/files/${id}/move`, body);
}

/** A file without what only `GET /api/files/{id}` adds. */
async function plain(id: string): Promise<Json> {
  const { placement: _placement, ...file } = await readFile(client, id);
  return file;
}

describe('a file', () => {
  test('has every field, and its placement where it is read by itself', async () => {
    const bytes = randomBytes(1_234);
    const name = uniqueName('whole');
    const made = await client.putFile(name, bytes, {
      directory: home,
      type: 'application/x-own',
      fileClass: 'own_class-1',
    });
    expectFile(made, {
      name,
      directory_id: home,
      path: `${homePath}/${name}`,
      size: 1_234,
      sha256: sha256(bytes),
      media_type: 'application/octet-stream',
      file_class: 'own_class-1',
      version: 1,
    });
    const answer = expectStatus(await client.get(`/api/files/${made['id']}`), 200);
    const { placement, ...file } = answer.json;
    expect(file).toEqual(made);
    expectEtag(answer);
    expect(placement).toEqual({
      state: 'satisfied',
      replicas: [
        {
          backend_id: expect.stringMatching(/^[0-9a-f-]{36}$/),
          backend_name: expect.stringMatching(/\S/),
          state: 'available',
          verified_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
        },
      ],
    });
  });

  test('of no bytes is a file', async () => {
    expectFile(await put(Buffer.alloc(0)), { size: 0, sha256: sha256('') });
  });

  test('that is not there, or is a directory, is 404', async () => {
    const directory = await client.makeDirectory(uniqueName(), home);
    for (const id of [unknownId, directory['id'], 'nothing', '0']) {
      expectProblem(await client.get(`/api/files/${id}`), 404, 'not_found');
      expectProblem(await rename(id, { name: uniqueName() }), 404, 'not_found');
      expectProblem(await move(id, { directory_id: home }), 404, 'not_found');
      expectProblem(await client.delete(`/api/files/${id}`), 404, 'not_found');
      expectProblem(await client.delete(`/api/files/${id}?permanent=true`), 404, 'not_found');
      expectProblem(await client.post(`/api/files/${id}/restore`), 404, 'not_found');
      for (const view of ['download', 'stream', 'preview']) {
        expectProblem(await client.get(`/api/files/${id}/${view}`), 404, 'not_found');
      }
    }
  });

  test('of the same content as another is a file of its own', async () => {
    const bytes = randomBytes(5_000);
    const [one, other] = [await put(bytes), await put(bytes)];
    expect(one['id']).not.toBe(other['id']);
    expectStatus(await client.delete(`/api/files/${one['id']}`), 200);
    expectStatus(await client.delete(`/api/files/${one['id']}?permanent=true`), 204);
    expect(await contentOf(client, other['id'])).toEqual(bytes);
  });
});

describe('the class', () => {
  const zip = Buffer.from('504b0304140000000800', 'hex');
  const cases: [string, string, Buffer, string][] = [
    [
      'image',
      'a.png',
      Buffer.from('89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489', 'hex'),
      'image/png',
    ],
    ['image', 'a.jpg', Buffer.from('ffd8ffe000104a46494600010100000100010000', 'hex'), 'image/jpeg'],
    ['video', 'a.mp4', Buffer.from('0000001c6674797069736f6d0000020069736f6d69736f326d703431', 'hex'), 'video/mp4'],
    [
      'audio',
      'a.mp3',
      Buffer.concat([Buffer.from('49443304000000000000fffb9064', 'hex'), Buffer.alloc(64)]),
      'audio/mpeg',
    ],
    ['document', 'a.pdf', Buffer.from('%PDF-1.4\n1 0 obj\n<<>>\nendobj\n'), 'application/pdf'],
    ['document', 'a.txt', Buffer.from('plain text'), 'text/plain'],
    ['document', 'a.json', Buffer.from('{"a": 1}'), 'application/json'],
    ['archive', 'a.zip', zip, 'application/zip'],
    ['other', 'a.bin', Buffer.from('00010203ff', 'hex'), 'application/octet-stream'],
  ];

  test.each(cases)('%s is found for %s', async (fileClass, name, bytes, mediaType) => {
    const made = await client.putFile(`${uniqueName()}${name}`, bytes, { directory: home });
    expect(made).toMatchObject({ file_class: fileClass, media_type: mediaType });
  });

  test('that the client names goes first', async () => {
    const made = await client.putFile(uniqueName('p.png'), at(cases, 0)[2], { directory: home, fileClass: 'video' });
    expect(made).toMatchObject({ file_class: 'video', media_type: 'image/png' });
  });
});

describe('renaming a file', () => {
  test('changes name, path, version and updated_at and nothing else', async () => {
    const bytes = randomBytes(2_000);
    const made = await put(bytes);
    const name = `${uniqueName('renamed')}.html`;
    const answer = expectStatus(await rename(made['id'], { name }), 200);
    const { version, updated_at: updatedAt } = answer.json;
    expect(answer.json).toEqual({ ...made, name, path: `${homePath}/${name}`, version, updated_at: updatedAt });
    expect(version).toBeGreaterThan(made['version']);
    expectEtag(answer);
    expect(await plain(made['id'])).toEqual(answer.json);
    expect(await contentOf(client, made['id'])).toEqual(bytes);
  });

  test('to a name that is taken is 409 and changes nothing, or takes the next free name', async () => {
    const [taken, made] = [await put('1', `${uniqueName()}.txt`), await put('2')];
    const problem = expectProblem(await rename(made['id'], { name: taken['name'] }), 409, 'name_conflict');
    expect(problem).toMatchObject({ conflicting_id: taken['id'], conflicting_kind: 'file' });
    expect(await plain(made['id'])).toEqual(made);
    const { json } = expectStatus(await rename(made['id'], { name: taken['name'], on_conflict: 'rename' }), 200);
    expect(json['name']).toBe(taken['name'].replace('.txt', ' (2).txt'));
  });

  test('to its own name is no clash', async () => {
    const made = await put();
    for (const onConflict of ['fail', 'rename']) {
      const { json } = expectStatus(await rename(made['id'], { name: made['name'], on_conflict: onConflict }), 200);
      expect(json['name']).toBe(made['name']);
    }
  });

  test('to another case of its name is a change', async () => {
    const made = await put('x', uniqueName('case'));
    const name = made['name'].toUpperCase();
    expect(expectStatus(await rename(made['id'], { name }), 200).json['name']).toBe(name);
  });

  test('needs a name and takes nothing else', async () => {
    const made = await put();
    expectProblem(await rename(made['id'], {}), 400, 'validation_failed');
    expectProblem(await rename(made['id'], { name: uniqueName(), directory_id: home }), 400, 'validation_failed');
    expectProblem(await rename(made['id'], { name: uniqueName(), media_type: 'text/html' }), 400, 'validation_failed');
  });
});

describe('moving a file', () => {
  test('changes its place and nothing else', async () => {
    const bytes = randomBytes(2_000);
    const made = await put(bytes);
    const target = await client.makeDirectory(uniqueName('target'), home);
    const answer = expectStatus(await move(made['id'], { directory_id: target['id'] }), 200);
    const { version, updated_at: updatedAt } = answer.json;
    const path = `${target['path']}/${made['name']}`;
    expect(answer.json).toEqual({ ...made, directory_id: target['id'], path, version, updated_at: updatedAt });
    expect(version).toBeGreaterThan(made['version']);
    expectEtag(answer);
    expect(await plain(made['id'])).toEqual(answer.json);
    expect(await contentOf(client, made['id'])).toEqual(bytes);
    expect(await childNames(client, home)).not.toContain(made['name']);
    expect(await childNames(client, target['id'])).toEqual([made['name']]);
  });

  test('can give it another name on the way', async () => {
    const [made, target] = [await put(), await client.makeDirectory(uniqueName(), home)];
    const name = uniqueName('moved');
    const { json } = expectStatus(await move(made['id'], { directory_id: target['id'], name }), 200);
    expect(json).toMatchObject({ directory_id: target['id'], name, path: `${target['path']}/${name}` });
  });

  test('to where it is already is no clash', async () => {
    const made = await put();
    const { json } = expectStatus(await move(made['id'], { directory_id: home, on_conflict: 'rename' }), 200);
    expect(json).toMatchObject({ directory_id: home, name: made['name'] });
  });

  test('onto a name that is taken is 409 and moves nothing, or takes the next free name', async () => {
    const [made, target] = [await put('x', `${uniqueName()}.txt`), await client.makeDirectory(uniqueName(), home)];
    await client.makeDirectory(made['name'], target['id']);
    expectProblem(await move(made['id'], { directory_id: target['id'] }), 409, 'name_conflict');
    expect(await plain(made['id'])).toEqual(made);
    const { json } = expectStatus(await move(made['id'], { directory_id: target['id'], on_conflict: 'rename' }), 200);
    expect(json['name']).toBe(made['name'].replace('.txt', ' (2).txt'));
  });

  test('into nothing, into a file or without a target is refused', async () => {
    const [made, other] = [await put(), await put()];
    expectProblem(await move(made['id'], { directory_id: unknownId }), 404, 'not_found');
    expectProblem(await move(made['id'], { directory_id: other['id'] }), 404, 'not_found');
    expectProblem(await move(made['id'], { directory_id: made['id'] }), 404, 'not_found');
    expectProblem(await move(made['id'], {}), 400, 'validation_failed');
    expectProblem(await move(made['id'], { directory_id: null }), 400, 'validation_failed');
    expectProblem(await move(made['id'], { parent_id: home }), 400, 'validation_failed');
    expect(await plain(made['id'])).toEqual(made);
  });

  test('of many to one name at one moment one gets through', async () => {
    const target = await client.makeDirectory(uniqueName(), home);
    const name = uniqueName('wanted');
    const files = await Promise.all(Array.from({ length: 8 }, () => put()));
    const answers = await Promise.all(files.map((file) => move(file['id'], { directory_id: target['id'], name })));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
    for (const answer of answers.filter(({ status }) => status !== 200)) expectProblem(answer, 409, 'name_conflict');
    expect(await childNames(client, target['id'])).toEqual([name]);
  });
});
