import { beforeAll, describe, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { expectStatus, logInAs, sha256 } from '../support/client.ts';
import type { Client, Json } from '../support/client.ts';
import { admin } from '../support/contract.ts';
import { expectProblem } from '../support/problems.ts';
import { uniqueName } from '../support/system.ts';
import { append, completeUpload, contentOf, finalize, makeUpload } from '../support/uploads.ts';
import type { MadeUpload } from '../support/uploads.ts';

const png = Buffer.concat([Buffer.from('89504e470d0a1a0a0000000d49484452', 'hex'), Buffer.alloc(64, 1)]);

describe('finalize', () => {
  let client: Client;
  let directory: string;

  beforeAll(async () => {
    client = await admin();
    directory = String((await client.makeDirectory(uniqueName('finalize')))['id']);
  });

  const target = (filename: string, more: Record<string, string> = {}): Record<string, string> => ({
    filename,
    directory_id: directory,
    ...more,
  });
  const completed = (content: string | Buffer, metadata: Record<string, string>): Promise<MadeUpload> =>
    completeUpload(client, Buffer.from(content), metadata);
  const namesIn = async (id: string): Promise<string[]> => {
    const { items } = expectStatus(await client.get(`/api/directories/${id}/children`), 200).json;
    return items.map((item: Json) => item['name']);
  };

  test('F01 an incomplete upload is 409 with offset and length, and nothing is made', async () => {
    const name = uniqueName('incomplete');
    const upload = await makeUpload(client, { length: 10, metadata: target(name), body: Buffer.from('half') });
    const answer = await finalize(client, upload);
    expectProblem(answer, 409, 'upload_incomplete');
    expect(answer.json).toMatchObject({ offset: 4, length: 10 });
    expect(await namesIn(directory)).not.toContain(name);
    expectStatus(await append(client, upload.path, 4, Buffer.from(' whole')), 204);
    expectStatus(await finalize(client, upload), 201);
    expect(await namesIn(directory)).toContain(name);
  });

  test('F02 finalizing is 201 with the file, and 200 with the same file again', async () => {
    const bytes = randomBytes(1_500_000);
    const name = uniqueName('repeat');
    const upload = await completed(bytes, target(name, { filetype: 'application/x-own' }));
    const first = expectStatus(await finalize(client, upload), 201);
    expect(first.json).toMatchObject({
      kind: 'file',
      name,
      directory_id: directory,
      size: bytes.length,
      sha256: sha256(bytes),
      state: 'active',
      version: 1,
      deleted_at: null,
      purge_at: null,
    });
    expect(first.headers.get('location')).toBe(`/api/files/${first.json['id']}`);
    expect(first.headers.get('etag')).toBe('"1"');
    for (const body of [{}, { filename: 'another-name' }]) {
      const again = expectStatus(await finalize(client, upload, body), 200);
      expect(again.json).toEqual(first.json);
    }
    expect((await namesIn(directory)).filter((found) => found === name)).toHaveLength(1);
  });

  test('F02 of many at the same moment one file comes out', async () => {
    const name = uniqueName('parallel');
    const upload = await completed(randomBytes(700_000), target(name));
    const answers = await Promise.all(Array.from({ length: 6 }, () => finalize(client, upload)));
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(1);
    expect(answers.every(({ status }) => status === 200 || status === 201)).toBe(true);
    expect(new Set(answers.map(({ json }) => json['id'])).size).toBe(1);
    expect((await namesIn(directory)).filter((found) => found === name)).toHaveLength(1);
  });

  test('F03 a name clash is 409 and the upload stays: another name then does', async () => {
    const name = uniqueName('clash');
    await client.putFile(name, 'first', { directory });
    const upload = await completed('second', target(name));
    for (let attempt = 0; attempt < 2; attempt += 1)
      expectProblem(await finalize(client, upload), 409, 'name_conflict');
    const file = expectStatus(await finalize(client, upload, { filename: `${name}-2` }), 201).json;
    expect(file).toMatchObject({ name: `${name}-2`, sha256: sha256('second') });
    expect((await contentOf(client, file['id'])).toString()).toBe('second');
  });

  test('F03 a clash with a directory, or with the same name in another normal form, is one too', async () => {
    const name = uniqueName('e\u0301');
    await client.makeDirectory(name.normalize('NFC'), directory);
    expectProblem(await finalize(client, await completed('x', target(name))), 409, 'name_conflict');
  });

  test('on_conflict "rename" takes the next free name, from the metadata or from the request', async () => {
    const name = uniqueName('photo');
    await client.putFile(`${name}.jpg`, 'one', { directory });
    const second = await completed('two', target(`${name}.jpg`, { on_conflict: 'rename' }));
    expect(expectStatus(await finalize(client, second), 201).json['name']).toBe(`${name} (2).jpg`);
    const third = await completed('three', target(`${name}.jpg`));
    expect(expectStatus(await finalize(client, third, { on_conflict: 'rename' }), 201).json['name']).toBe(
      `${name} (3).jpg`,
    );
    const fourth = await completed('four', target(`${name}.jpg`, { on_conflict: 'rename' }));
    expectProblem(await finalize(client, fourth, { on_conflict: 'fail' }), 409, 'name_conflict');
  });

  test('F04 after finalize HEAD still says complete, and the file outlives a DELETE of the upload', async () => {
    const upload = await completed('kept', target(uniqueName('kept')));
    const file = expectStatus(await finalize(client, upload), 201).json;
    const head = expectStatus(await client.tus('HEAD', upload.path), 200);
    expect([head.headers.get('upload-offset'), head.headers.get('upload-length')]).toEqual(['4', '4']);
    const terminated = await client.tus('DELETE', upload.path);
    expect([409, 404, 410]).toContain(terminated.status);
    expect((await contentOf(client, file['id'])).toString()).toBe('kept');
  });

  test('F06 the directory is judged at finalize: one that went into the bin meanwhile is 409', async () => {
    const parent = await client.makeDirectory(uniqueName('outer'), directory);
    const inner = await client.makeDirectory('inner', String(parent['id']));
    const upload = await completed('x', { filename: 'x', directory_id: String(inner['id']) });
    expectStatus(await client.delete(`/api/directories/${parent['id']}`), 200);
    expectProblem(await finalize(client, upload), 409, 'state_conflict');
    const elsewhere = expectStatus(
      await finalize(client, upload, { directory_id: directory, filename: uniqueName() }),
      201,
    );
    expect(elsewhere.json['directory_id']).toBe(directory);
  });

  test('F06 a directory that was purged meanwhile, or is unknown, is 404', async () => {
    const gone = await client.makeDirectory(uniqueName('purged'));
    const upload = await completed('x', { filename: uniqueName(), directory_id: String(gone['id']) });
    expectStatus(await client.delete(`/api/directories/${gone['id']}`), 200);
    expectStatus(await client.delete(`/api/directories/${gone['id']}?permanent=true`), 204);
    expectProblem(await finalize(client, upload), 404, 'not_found');
    expectProblem(
      await finalize(client, upload, { directory_id: '0193fa2c-7a3e-7cc1-9f0e-0d5f1a2b3c4d' }),
      404,
      'not_found',
    );
    expectStatus(await finalize(client, upload, { directory_id: 'root' }), 201);
  });

  test('F06 a role that was lowered meanwhile is 403', async () => {
    const name = uniqueName('lowered');
    const user = await logInAs(client, 'editor', name);
    const upload = await completeUpload(user, Buffer.from('x'), target(uniqueName()));
    const me = expectStatus(await user.get('/api/auth/me'), 200).json['user'];
    expectStatus(await client.call('PATCH', `/api/users/${me.id}`, { body: { role: 'viewer' } }), 200);
    const relogged = expectStatus(
      await user.post('/api/auth/login', { username: name, password: `password of ${name}` }),
      200,
    ).json['access_token'];
    const headers = { authorization: `Bearer ${relogged}` };
    const answer = await fetch(`${client.url}/api/uploads/${upload.id}/finalize`, { method: 'POST', headers });
    expect(answer.status).toBe(403);
  });

  test('a wrong sha256 is 422 and makes no file; the right one then does', async () => {
    const name = uniqueName('checked');
    const upload = await completed('content', target(name));
    for (let attempt = 0; attempt < 2; attempt += 1) {
      expectProblem(await finalize(client, upload, { sha256: sha256('other') }), 422, 'checksum_mismatch');
    }
    expect(await namesIn(directory)).not.toContain(name);
    expectStatus(await finalize(client, upload, { sha256: sha256('content') }), 201);
  });

  test('the sha256 of the metadata counts, unless the request gives another', async () => {
    const wrong = await completed('content', target(uniqueName(), { sha256: sha256('other') }));
    expectProblem(await finalize(client, wrong), 422, 'checksum_mismatch');
    expectStatus(await finalize(client, wrong, { sha256: sha256('content') }), 201);
    const right = await completed('content', target(uniqueName(), { sha256: sha256('content').toUpperCase() }));
    expectStatus(await finalize(client, right), 201);
  });

  test('without a file name it is 400; one in the request then does', async () => {
    const upload = await completed('x', { directory_id: directory });
    const answer = await finalize(client, upload);
    expectProblem(answer, 400, 'validation_failed');
    expect(answer.json['errors']).toEqual([{ pointer: '/filename', detail: expect.any(String) }]);
    const name = uniqueName('named');
    expect(expectStatus(await finalize(client, upload, { filename: name }), 201).json['name']).toBe(name);
  });

  test.each<[string, unknown]>([
    ['a malformed name', { filename: 'a/b' }],
    ['a name of white space', { filename: ' ' }],
    ['a malformed class', { file_class: 'Own Class' }],
    ['a malformed sha256', { sha256: 'abc' }],
    ['a malformed directory', { directory_id: 'here' }],
    ['another on_conflict', { on_conflict: 'overwrite' }],
    ['an unknown field', { file_name: 'typo' }],
    ['no object', []],
  ])('%s is 400', async (_name, body) => {
    const upload = await completed('x', target(uniqueName()));
    expectProblem(await finalize(client, upload, body), 400, 'validation_failed');
    expectStatus(await finalize(client, upload), 201);
  });

  test('without a directory the file lands in the root', async () => {
    const upload = await completed('x', { filename: uniqueName('rooted') });
    const file = expectStatus(await finalize(client, upload), 201).json;
    expect(file['path']).toBe(`/${file['name']}`);
  });

  test.each<[string, Buffer, Record<string, string>, string, string]>([
    ['a picture', png, {}, 'image/png', 'image'],
    ['a picture called text', png, { filetype: 'text/plain' }, 'image/png', 'image'],
    [
      'HTML called a picture',
      Buffer.from('<!doctype html><script>1</script>'),
      { filetype: 'image/png' },
      'text/plain',
      'document',
    ],
    ['text', Buffer.from('plain words'), {}, 'text/plain', 'document'],
    ['JSON', Buffer.from('{"a":1}'), { filetype: 'application/json' }, 'application/json', 'document'],
    ['noise', randomBytes(512).fill(0, 0, 16), { filetype: 'video/mp4' }, 'application/octet-stream', 'other'],
    ['a class of its own', png, { file_class: 'x-rays' }, 'image/png', 'x-rays'],
  ])(
    '%s gets its media type from the content and its class from that',
    async (_name, bytes, metadata, type, fileClass) => {
      const upload = await completeUpload(client, bytes, target(uniqueName(), metadata));
      const file = expectStatus(await finalize(client, upload), 201).json;
      expect([file['media_type'], file['file_class']]).toEqual([type, fileClass]);
    },
  );

  test('the class of the request goes before that of the metadata', async () => {
    const upload = await completed('x', target(uniqueName(), { file_class: 'first' }));
    expect(expectStatus(await finalize(client, upload, { file_class: 'second' }), 201).json['file_class']).toBe(
      'second',
    );
  });

  test('the same Idempotency-Key answers the first result again, and another body under it is 422', async () => {
    const upload = await completed('x', { directory_id: directory });
    const path = `/api/uploads/${upload.id}/finalize`;
    const key = { 'idempotency-key': uniqueName('key') };
    const body = { filename: uniqueName('once') };
    const first = expectStatus(await client.post(path, body, key), 201);
    const again = await client.post(path, body, key);
    expect([again.status, again.json]).toEqual([201, first.json]);
    expectProblem(await client.post(path, { filename: 'other' }, key), 422, 'idempotency_key_reused');
  });

  test('an unknown upload is 404', async () => {
    expectProblem(await finalize(client, { id: '0193fa2c-7a3e-7cc1-9f0e-0d5f1a2b3c4d' }), 404, 'not_found');
    expectProblem(await finalize(client, { id: 'nonsense' }), 404, 'not_found');
  });
});
