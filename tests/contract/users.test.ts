import { beforeAll, describe, expect, test } from '@jest/globals';
import { Client, expectStatus, logIn, logInAs } from '@stowage/tests/support/client';
import type { Json } from '@stowage/tests/support/client';
import { admin, baseUrl } from '@stowage/tests/support/contract';
import { expectProblem, pointersOf } from '@stowage/tests/support/problems';
import { unknownId } from '@stowage/tests/support/routes';
import { uniqueName } from '@stowage/tests/support/system';

const password = 'a good long password';
let root: Client;

beforeAll(async () => {
  root = await admin();
});

async function makeUser(role = 'viewer', username = uniqueName('user')): Promise<Json> {
  return expectStatus(await root.post('/api/users', { username, password, role }), 201).json;
}

function change(id: string, body: Json): ReturnType<Client['call']> {
  return root.call('PATCH', `/api/users/${id}`, { body });
}

async function idOf(client: Client): Promise<string> {
  return (await client.get('/api/auth/me')).json['user'].id;
}

describe('Making users', () => {
  test('gives the user with its address and never a password', async () => {
    const username = uniqueName('user');
    const answer = expectStatus(await root.post('/api/users', { username, password, role: 'editor' }), 201);
    expect(answer.json).toEqual({
      id: expect.any(String),
      username,
      role: 'editor',
      disabled: false,
      created_at: expect.any(String),
    });
    expect(answer.headers.get('location')).toBe(`/api/users/${answer.json['id']}`);
    expect((await logIn(baseUrl(), username, password)).token).not.toBeNull();
  });

  test('refuses a name that is taken', async () => {
    const { username } = await makeUser();
    expectProblem(await root.post('/api/users', { username, password, role: 'viewer' }), 409, 'name_conflict');
  });

  test('of two with one name at the same moment, one comes out', async () => {
    const username = uniqueName('user');
    const answers = await Promise.all(
      [1, 2, 3].map(() => root.post('/api/users', { username, password, role: 'viewer' })),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 409, 409]);
  });

  test.each([
    ['11 characters', 'a'.repeat(11), 400],
    ['12 characters', 'a'.repeat(12), 201],
    ['12 characters of four bytes', '🔑'.repeat(12), 201],
    ['6 characters of two UTF-16 units', '🔑'.repeat(6), 400],
    ['256 characters', 'a'.repeat(256), 201],
    ['257 characters', 'a'.repeat(257), 400],
    ['nothing', '', 400],
  ])('a password of %s', async (_what, given, status) => {
    const username = uniqueName('user');
    const answer = await root.post('/api/users', { username, password: given, role: 'viewer' });
    if (status === 400) {
      expect(pointersOf(expectProblem(answer, 400, 'validation_failed'))).toEqual(['/password']);
    } else {
      expectStatus(answer, 201);
      await logIn(baseUrl(), username, given);
    }
  });

  test('a long password counts to its last character', async () => {
    const username = uniqueName('user');
    const long = 'x'.repeat(250);
    expectStatus(await root.post('/api/users', { username, password: `${long}right`, role: 'viewer' }), 201);
    expectProblem(
      await new Client(baseUrl()).post('/api/auth/login', { username, password: `${long}wrong` }),
      401,
      'invalid_credentials',
    );
    await logIn(baseUrl(), username, `${long}right`);
  });

  test.each([
    ['role', { username: 'x', password, role: 'owner' }, '/role'],
    ['no role', { username: 'x', password }, '/role'],
    ['a name with a space', { username: 'a b', password, role: 'viewer' }, '/username'],
    ['an empty name', { username: '', password, role: 'viewer' }, '/username'],
    ['a name with a control character', { username: 'a\u0000b', password, role: 'viewer' }, '/username'],
    ['a name too long', { username: 'a'.repeat(65), password, role: 'viewer' }, '/username'],
    ['an id of its own', { id: unknownId, username: 'x', password, role: 'viewer' }, '/id'],
    ['a hash', { username: 'x', password, role: 'viewer', password_hash: 'y' }, '/password_hash'],
  ])('refuses %s', async (_what, body, pointer) => {
    const problem = expectProblem(await root.post('/api/users', body), 400, 'validation_failed');
    expect(pointersOf(problem)).toContain(pointer);
  });
});

describe('Listing users', () => {
  test('goes by name, page by page, without a gap', async () => {
    const prefix = uniqueName('zz');
    for (const n of [3, 1, 2]) await makeUser('viewer', `${prefix}-${n}`);
    const seen: string[] = [];
    let cursor = '';
    do {
      const { json } = expectStatus(await root.get(`/api/users?limit=2&cursor=${cursor}`), 200);
      expect(json['items'].length).toBeLessThanOrEqual(2);
      for (const user of json['items']) seen.push(user.username);
      cursor = json['next_cursor'] ?? '';
    } while (cursor !== '');
    expect(seen).toEqual([...seen].sort((a, b) => (a < b ? -1 : 1)));
    expect(new Set(seen).size).toBe(seen.length);
    expect(seen.filter((name) => name.startsWith(prefix))).toEqual([1, 2, 3].map((n) => `${prefix}-${n}`));
  });
});

describe('Changing users', () => {
  test('a change of role ends the user’s sessions, and the new role holds', async () => {
    const username = uniqueName('user');
    const before = await logInAs(root, 'viewer', username);
    const answer = expectStatus(await change(await idOf(before), { role: 'admin' }), 200);
    expect(answer.json).toMatchObject({ username, role: 'admin', disabled: false });
    expectProblem(await before.get('/api/auth/me'), 401, 'unauthenticated');
    const after = await logIn(baseUrl(), username, `password of ${username}`);
    expectStatus(await after.get('/api/users'), 200);
  });

  test('a change of password ends the user’s sessions, and only the new one logs in', async () => {
    const username = uniqueName('user');
    const before = await logInAs(root, 'viewer', username);
    expectStatus(await change(await idOf(before), { password }), 200);
    expectProblem(await before.get('/api/auth/me'), 401, 'unauthenticated');
    const old = await new Client(baseUrl()).post('/api/auth/login', { username, password: `password of ${username}` });
    expectProblem(old, 401, 'invalid_credentials');
    await logIn(baseUrl(), username, password);
  });

  test('disabling ends the user’s sessions and keeps them out until they are enabled again', async () => {
    const username = uniqueName('user');
    const before = await logInAs(root, 'viewer', username);
    const id = await idOf(before);
    expect(expectStatus(await change(id, { disabled: true }), 200).json['disabled']).toBe(true);
    expectProblem(await before.get('/api/auth/me'), 401, 'unauthenticated');
    const refused = await new Client(baseUrl()).post('/api/auth/login', {
      username,
      password: `password of ${username}`,
    });
    expectProblem(refused, 401, 'invalid_credentials');
    expectStatus(await change(id, { disabled: false }), 200);
    expectProblem(await before.get('/api/auth/me'), 401, 'unauthenticated');
    await logIn(baseUrl(), username, `password of ${username}`);
  });

  test('what changes nothing ends nothing', async () => {
    const viewer = await logInAs(root, 'viewer', uniqueName('user'));
    const id = await idOf(viewer);
    expectStatus(await change(id, {}), 200);
    expectStatus(await change(id, { role: 'viewer', disabled: false }), 200);
    expectStatus(await viewer.get('/api/auth/me'), 200);
  });

  test.each([
    ['a short password', { password: 'short' }, '/password'],
    ['an unknown role', { role: 'root' }, '/role'],
    ['another name', { username: 'other' }, '/username'],
    ['null', { disabled: null }, '/disabled'],
  ])('refuses %s and leaves the user as it was', async (_what, body, pointer) => {
    const viewer = await logInAs(root, 'viewer', uniqueName('user'));
    const problem = expectProblem(await change(await idOf(viewer), body), 400, 'validation_failed');
    expect(pointersOf(problem)).toContain(pointer);
    expectStatus(await viewer.get('/api/auth/me'), 200);
  });

  test('an unknown or malformed id is 404', async () => {
    expectProblem(await change(unknownId, { role: 'viewer' }), 404, 'not_found');
    expectProblem(await change('me', { role: 'viewer' }), 404, 'not_found');
    expectProblem(await root.delete(`/api/users/${unknownId}`), 404, 'not_found');
    expectProblem(await root.delete("/api/users/1'or'1'='1"), 404, 'not_found');
  });
});

describe('Removing users', () => {
  test('ends their sessions and frees the name', async () => {
    const username = uniqueName('user');
    const user = await logInAs(root, 'editor', username);
    const id = await idOf(user);
    expectStatus(await root.delete(`/api/users/${id}`), 204);
    expectProblem(await user.get('/api/auth/me'), 401, 'unauthenticated');
    expectProblem(await root.delete(`/api/users/${id}`), 404, 'not_found');
    const anew = await makeUser('viewer', username);
    expect(anew['id']).not.toBe(id);
  });

  test('what they made stays', async () => {
    const user = await logInAs(root, 'editor', uniqueName('user'));
    const directory = await user.makeDirectory(uniqueName());
    const file = await user.putFile('kept.txt', 'kept', { directory: directory['id'] });
    expectStatus(await root.delete(`/api/users/${await idOf(user)}`), 204);
    expect((await root.get(`/api/files/${file['id']}/download`)).bytes.toString()).toBe('kept');
  });
});
