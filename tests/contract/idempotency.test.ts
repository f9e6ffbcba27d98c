import { beforeAll, describe, expect, test } from '@jest/globals';
import { expectStatus, logInAs, uploadIdOf, uploadMetadata } from '@stowage/tests/support/client';
import type { Answer, Client, Json } from '@stowage/tests/support/client';
import { admin, baseUrl } from '@stowage/tests/support/contract';
import { expectProblem } from '@stowage/tests/support/problems';
import { sendOdd } from '@stowage/tests/support/odd-http';
import { uniqueName } from '@stowage/tests/support/system';

let root: Client;
let editor: Client;
let home: string;

beforeAll(async () => {
  root = await admin();
  editor = await logInAs(root, 'editor', uniqueName('editor'));
  home = (await root.makeDirectory(uniqueName('keys')))['id'];
});

function make(key: string, body: Json, client: Client = root): Promise<Answer> {
  return client.post('/api/directories', { parent_id: home, ...body }, { 'idempotency-key': key });
}

async function namesIn(directory: string): Promise<string[]> {
  const { json } = expectStatus(await root.get(`/api/directories/${directory}/children?limit=1000`), 200);
  return json['items'].map((item: Json) => item['name']);
}

describe('The same Idempotency-Key', () => {
  test('with the same body answers the first result again, 201 and Location as well', async () => {
    const [key, name] = [uniqueName('key'), uniqueName()];
    const first = expectStatus(await make(key, { name }), 201);
    const again = expectStatus(await make(key, { name }), 201);
    expect(again.json).toEqual(first.json);
    expect(again.headers.get('location')).toBe(first.headers.get('location'));
    expect(again.headers.get('etag')).toBe(first.headers.get('etag'));
    expect(again.headers.get('x-request-id')).not.toBe(first.headers.get('x-request-id'));
  });

  test('answers the first result though the thing has changed since', async () => {
    const [key, name] = [uniqueName('key'), uniqueName()];
    const first = expectStatus(await make(key, { name }), 201);
    expectStatus(await root.post(`/api/directories/${first.json['id']}/rename`, { name: uniqueName() }), 200);
    expect(expectStatus(await make(key, { name }), 201).json).toEqual(first.json);
    expect(await namesIn(home)).not.toContain(name);
  });

  test('makes one of what on_conflict would have made two of', async () => {
    const [key, name] = [uniqueName('key'), uniqueName()];
    const body = { name, on_conflict: 'rename' };
    const first = expectStatus(await make(key, body), 201);
    expect(expectStatus(await make(key, body), 201).json['id']).toBe(first.json['id']);
    expect((await namesIn(home)).filter((other) => other.startsWith(name))).toEqual([name]);
  });

  test('with another body is 422 and changes nothing', async () => {
    const [key, name] = [uniqueName('key'), uniqueName()];
    expectStatus(await make(key, { name }), 201);
    const other = uniqueName();
    expectProblem(await make(key, { name: other }), 422, 'idempotency_key_reused');
    expectProblem(await make(key, { name, on_conflict: 'rename' }), 422, 'idempotency_key_reused');
    expect(await namesIn(home)).not.toContain(other);
  });

  test('from several requests at the same moment makes one change, and all get its answer', async () => {
    const [key, name] = [uniqueName('key'), uniqueName()];
    const answers = await Promise.all([1, 2, 3, 4, 5].map(() => make(key, { name, on_conflict: 'rename' })));
    expect(new Set(answers.map((answer) => expectStatus(answer, 201).json['id'])).size).toBe(1);
    expect((await namesIn(home)).filter((other) => other.startsWith(name))).toEqual([name]);
  });

  test('of two bodies at the same moment lets one through', async () => {
    const key = uniqueName('key');
    const answers = await Promise.all(['a', 'b'].map((letter) => make(key, { name: `${key}-${letter}` })));
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 422]);
  });

  test('of another user is another key', async () => {
    const key = uniqueName('key');
    const mine = expectStatus(await make(key, { name: uniqueName() }), 201);
    const theirs = expectStatus(await make(key, { name: uniqueName() }, editor), 201);
    expect(theirs.json['id']).not.toBe(mine.json['id']);
  });

  test('on another route, or for another thing, is another key', async () => {
    const key = uniqueName('key');
    const headers = { 'idempotency-key': key };
    const one = expectStatus(await make(key, { name: uniqueName() }), 201).json;
    const two = await root.makeDirectory(uniqueName(), home);
    for (const { id } of [one, two] as { id: string }[]) {
      const name = uniqueName();
      expect(expectStatus(await root.post(`/api/directories/${id}/rename`, { name }, headers), 200).json).toMatchObject(
        { id, name },
      );
    }
  });

  test('after a refusal is free: the next try is a first one', async () => {
    const [key, name] = [uniqueName('key'), uniqueName()];
    const taken = await root.makeDirectory(name, home);
    expectProblem(await make(key, { name }), 409, 'name_conflict');
    expectStatus(await root.delete(`/api/directories/${taken['id']}`), 200);
    expectStatus(await make(key, { name }), 201);
  });

  test('of a user who may no longer do it is 403', async () => {
    const username = uniqueName('editor');
    const user = await logInAs(root, 'editor', username);
    const key = uniqueName('key');
    const name = uniqueName();
    expectStatus(await make(key, { name }, user), 201);
    const { id } = (await user.get('/api/auth/me')).json['user'];
    expectStatus(await root.call('PATCH', `/api/users/${id}`, { body: { role: 'viewer' } }), 200);
    expectProblem(await make(key, { name }, user), 401, 'unauthenticated');
  });
});

describe('Every change of the tree takes a key', () => {
  const withKey = (): Record<string, string> => ({ 'idempotency-key': uniqueName('key') });

  test.each([
    ['/api/directories', 'parent_id', () => root.makeDirectory(uniqueName(), home)],
    ['/api/files', 'directory_id', () => root.putFile(uniqueName(), 'x', { directory: home })],
  ])('%s: rename, move, delete and restore happen once', async (base, target, makeOne) => {
    const { id } = await makeOne();
    const other = await root.makeDirectory(uniqueName(), home);
    const version = async (): Promise<number> => (await root.get(`${base}/${id}`)).json['version'];
    const steps: ((headers: Record<string, string>) => Promise<Answer>)[] = [
      (headers) => root.post(`${base}/${id}/rename`, { name: 'renamed' }, headers),
      (headers) => root.post(`${base}/${id}/move`, { [target]: other['id'] }, headers),
      (headers) => root.delete(`${base}/${id}`, headers),
      (headers) => root.post(`${base}/${id}/restore`, {}, headers),
    ];
    for (const step of steps) {
      const headers = withKey();
      const first = expectStatus(await step(headers), 200);
      const after = await version();
      expect(expectStatus(await step(headers), 200).json).toEqual(first.json);
      expect(await version()).toBe(after);
    }
    expectStatus(await root.delete(`${base}/${id}`), 200);
    const headers = withKey();
    expectStatus(await root.delete(`${base}/${id}?permanent=true`, headers), 204);
    expectStatus(await root.delete(`${base}/${id}?permanent=true`, headers), 204);
    expectProblem(await root.delete(`${base}/${id}?permanent=true`, withKey()), 404, 'not_found');
  });

  test('finalizing answers 201 again to the same key, and 200 to another', async () => {
    const metadata = uploadMetadata({ filename: uniqueName(), directory_id: home });
    const made = await root.tus(
      'POST',
      '/files',
      { 'upload-length': '1', 'upload-metadata': metadata },
      Buffer.from('x'),
    );
    const path = `/api/uploads/${uploadIdOf(expectStatus(made, 201))}/finalize`;
    const headers = withKey();
    const first = expectStatus(await root.post(path, {}, headers), 201);
    expect(expectStatus(await root.post(path, {}, headers), 201).json).toEqual(first.json);
    expect(expectStatus(await root.post(path, {}, withKey()), 200).json['id']).toBe(first.json['id']);
    expectProblem(await root.post(path, { filename: 'other' }, headers), 422, 'idempotency_key_reused');
  });

  test('a stale If-Match does not spoil a key’s first answer', async () => {
    const made = await root.makeDirectory(uniqueName(), home);
    const headers = { ...withKey(), 'if-match': `"${made['version']}"` };
    const first = expectStatus(
      await root.post(`/api/directories/${made['id']}/rename`, { name: uniqueName() }, headers),
      200,
    );
    const body = { name: first.json['name'] };
    expect(expectStatus(await root.post(`/api/directories/${made['id']}/rename`, body, headers), 200).json).toEqual(
      first.json,
    );
  });
});

describe('What is no key', () => {
  test.each([
    ['nothing', ''],
    ['a space inside', 'two words'],
    ['129 characters', 'k'.repeat(129)],
    ['letters beyond ASCII', 'schlüssel'],
    ['a tab', 'a\tb'],
  ])('%s is 400 and changes nothing', async (_what, key) => {
    const name = uniqueName();
    const answer = await sendKeys([key], name);
    expectProblem(answer, 400, 'validation_failed');
    expect(await namesIn(home)).not.toContain(name);
  });

  test('two keys are 400', async () => {
    expectProblem(await sendKeys(['one', 'two'], uniqueName()), 400, 'validation_failed');
  });

  test('128 characters of every visible kind are a key', async () => {
    const visible = Array.from({ length: 94 }, (_, i) => String.fromCharCode(0x21 + i)).join('');
    const key = `${uniqueName()}${visible}`.padEnd(128, 'k').slice(0, 128);
    const name = uniqueName();
    const first = expectStatus(await sendKeys([key], name), 201);
    expect(expectStatus(await sendKeys([key], name), 201).json).toEqual(first.json);
  });

  test('users take none: the second of two is a clash', async () => {
    const headers = { 'idempotency-key': uniqueName('key') };
    const body = { username: uniqueName('user'), password: 'a good long password', role: 'viewer' };
    expectStatus(await root.post('/api/users', body, headers), 201);
    expectProblem(await root.post('/api/users', body, headers), 409, 'name_conflict');
  });

  test('/files takes none: two requests make two uploads', async () => {
    const headers = { 'idempotency-key': uniqueName('key'), 'upload-length': '1' };
    const one = expectStatus(await root.tus('POST', '/files', headers), 201);
    const two = expectStatus(await root.tus('POST', '/files', headers), 201);
    expect(one.headers.get('location')).not.toBe(two.headers.get('location'));
  });

  function sendKeys(keys: string[], name: string): Promise<Answer> {
    return sendOdd(baseUrl(), {
      method: 'POST',
      path: '/api/directories',
      headers: [
        ['Authorization', `Bearer ${root.token}`],
        ['Content-Type', 'application/json'],
        ...keys.map((key): [string, string] => ['Idempotency-Key', key]),
      ],
      body: JSON.stringify({ parent_id: home, name }),
    });
  }
});
