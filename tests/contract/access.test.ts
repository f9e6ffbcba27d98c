import { beforeAll, describe, expect, test } from '@jest/globals';
import { Client, expectStatus, logIn, logInAs, uploadIdOf, uploadMetadata } from '@stowage/tests/support/client';
import type { Answer } from '@stowage/tests/support/client';
import { admin, baseUrl } from '@stowage/tests/support/contract';
import { expectProblem } from '@stowage/tests/support/problems';
import { accessOfRoutes, routesOf, unknownId } from '@stowage/tests/support/routes';
import type { Access } from '@stowage/tests/support/routes';
import { uniqueName } from '@stowage/tests/support/system';

const roles = ['viewer', 'editor', 'admin'] as const;
const anonymous = new Client(baseUrl());
let root: Client;
const clients = new Map<Access, Client>();

beforeAll(async () => {
  root = await admin();
  for (const role of roles) clients.set(role, await logInAs(root, role, uniqueName(role)));
});

function clientOf(role: Access): Client {
  const client = clients.get(role);
  if (!client) throw new Error(`nobody is ${role}`);
  return client;
}

/** A request that no route takes as valid, so that trying the whole table changes nothing. */
function tryRoute(client: Client, route: string): Promise<Answer> {
  const [method = '', template = ''] = route.split(' ');
  const path = template.replace(/\{\w+\}/g, unknownId);
  const headers = { 'idempotency-key': 'two words' };
  const hasBody = method === 'POST' || method === 'PUT' || method === 'PATCH';
  return client.call(method, path, hasBody ? { headers, body: { no_such_field: true } } : { headers });
}

const closed = Object.entries(accessOfRoutes).filter(([, access]) => access !== 'anybody');

test('the table of routes in these tests is the list of routes that the service describes', async () => {
  const { json } = await anonymous.get('/api/openapi.json');
  expect(routesOf(json).sort()).toEqual(Object.keys(accessOfRoutes).sort());
});

describe('Without a token', () => {
  test.each(closed)('%s is 401 and asks for a bearer token', async (route) => {
    const answer = await tryRoute(anonymous, route);
    expect(answer.status).toBe(401);
    expect(answer.headers.get('www-authenticate')).toMatch(/^Bearer\b/);
    if (!route.startsWith('HEAD ')) expectProblem(answer, 401, 'unauthenticated');
  });

  test('HEAD of every closed GET route is 401 as well', async () => {
    for (const [route] of closed.filter(([name]) => name.startsWith('GET '))) {
      const answer = await tryRoute(anonymous, route.replace('GET', 'HEAD'));
      expect({ route, status: answer.status }).toEqual({ route, status: 401 });
    }
  });

  test.each([
    '/api',
    '/api/nothing',
    '/api/users/x/y',
    '/files/a/b/c',
    '/api/backends/../users',
    '/files?x=1',
    '/api//users',
  ])('even the unknown address %s is 401: nobody learns what there is', async (path) => {
    expectProblem(await anonymous.get(path), 401, 'unauthenticated');
  });

  test('health, readiness, the description and OPTIONS answer', async () => {
    for (const path of ['/api/system/health', '/api/system/ready', '/api/openapi.json', '/api/docs']) {
      expect({ path, status: (await anonymous.get(path)).status }).toEqual({ path, status: 200 });
    }
    for (const path of ['/files', `/files/${unknownId}`, '/api/directories', '/api/users', '/api/auth/login']) {
      expect({ path, status: (await anonymous.call('OPTIONS', path)).status }).toEqual({ path, status: 204 });
    }
  });
});

describe('Roles', () => {
  const cases = roles.flatMap((role) =>
    closed.map(([route, access]) => ({
      role,
      route,
      may: roles.indexOf(role) >= roles.findIndex((r) => r === access),
    })),
  );

  test.each(cases.filter(({ may }) => !may))(
    'a $role may not $route: 403 even before the request is looked at',
    async ({ role, route }) => {
      const answer = await tryRoute(clientOf(role), route);
      expect(answer.status).toBe(403);
      if (!route.startsWith('HEAD ')) expectProblem(answer, 403, 'forbidden');
    },
  );

  test.each(cases.filter(({ may }) => may))('a $role may $route', async ({ role, route }) => {
    const { status } = await tryRoute(clientOf(role), route);
    expect(status).not.toBe(401);
    expect(status).not.toBe(403);
    expect(status).toBeLessThan(500);
  });

  test('403 comes before 400 and before 404 for ids that can not be', async () => {
    const viewer = clientOf('viewer');
    expectProblem(
      await viewer.call('POST', '/api/directories', {
        raw: '{broken',
        headers: { 'content-type': 'application/json' },
      }),
      403,
      'forbidden',
    );
    expectProblem(await viewer.post('/api/directories/no-id/rename', { name: '' }), 403, 'forbidden');
    expectProblem(await viewer.post('/api/users', { nonsense: 1 }), 403, 'forbidden');
    expectProblem(
      await viewer.call('POST', '/api/directories', { raw: 'x', headers: { 'content-type': 'text/plain' } }),
      403,
      'forbidden',
    );
  });

  test('a role in a header of the client means nothing', async () => {
    const forged = Buffer.from(JSON.stringify({ userId: unknownId, username: 'root', role: 'admin' })).toString(
      'base64url',
    );
    const headers = { 'stowage-actor': forged, 'x-user-id': unknownId, 'x-forwarded-user': 'admin', 'x-role': 'admin' };
    expectProblem(await clientOf('viewer').get('/api/users', headers), 403, 'forbidden');
    expectProblem(await anonymous.get('/api/users', headers), 401, 'unauthenticated');
  });

  test('a method in a header changes nothing under /api', async () => {
    const { id } = await root.makeDirectory(uniqueName());
    const headers = { 'x-http-method-override': 'DELETE', 'x-http-method': 'DELETE', 'x-method-override': 'DELETE' };
    expectProblem(await root.post(`/api/directories/${id}`, {}, headers), 405, 'method_not_allowed');
    expectStatus(await root.get(`/api/directories/${id}`, headers), 200);
    expect((await root.get(`/api/directories/${id}`)).json['state']).toBe('active');
  });
});

describe('Rights that change', () => {
  test('a lower role holds from the next request, in the middle of an upload as well', async () => {
    const username = uniqueName('editor');
    const editor = await logInAs(root, 'editor', username);
    const me = (await editor.get('/api/auth/me')).json['user'];
    const made = expectStatus(
      await editor.tus('POST', '/files', {
        'upload-length': '6',
        'upload-metadata': uploadMetadata({ filename: 'a' }),
      }),
      201,
    );
    const path = `/files/${uploadIdOf(made)}`;
    expectStatus(await editor.tus('PATCH', path, { 'upload-offset': '0' }, Buffer.from('abc')), 204);

    expectStatus(await root.call('PATCH', `/api/users/${me.id}`, { body: { role: 'viewer' } }), 200);
    expectProblem(
      await editor.tus('PATCH', path, { 'upload-offset': '3' }, Buffer.from('def')),
      401,
      'unauthenticated',
    );
    const again = await logIn(baseUrl(), username, `password of ${username}`);
    expectProblem(await again.tus('PATCH', path, { 'upload-offset': '3' }, Buffer.from('def')), 403, 'forbidden');
    expectProblem(await again.post(`/api/uploads/${uploadIdOf(made)}/finalize`), 403, 'forbidden');

    expectStatus(await root.call('PATCH', `/api/users/${me.id}`, { body: { role: 'editor' } }), 200);
    const restored = await logIn(baseUrl(), username, `password of ${username}`);
    const head = expectStatus(await restored.tus('HEAD', path), 200);
    expect(head.headers.get('upload-offset')).toBe('3');
  });
});

describe('What belongs to another user', () => {
  test('an upload of another user answers as one that never was, on every route', async () => {
    const owner = clientOf('editor');
    const stranger = await logInAs(root, 'editor', uniqueName('stranger'));
    const metadata = uploadMetadata({ filename: 'mine' });
    const made = expectStatus(
      await owner.tus('POST', '/files', { 'upload-length': '3', 'upload-metadata': metadata }, Buffer.from('abc')),
      201,
    );
    const foreign = uploadIdOf(made);

    const calls: ((id: string) => Promise<Answer>)[] = [
      (id) => stranger.get(`/api/uploads/${id}`),
      (id) => stranger.post(`/api/uploads/${id}/finalize`),
      (id) => stranger.tus('PATCH', `/files/${id}`, { 'upload-offset': '3' }, Buffer.alloc(0)),
      (id) => stranger.tus('DELETE', `/files/${id}`),
    ];
    for (const call of calls) {
      const [theirs, unknown] = [await call(foreign), await call(unknownId)];
      const { request_id: _one, ...foreignBody } = expectProblem(theirs, 404, 'not_found');
      const { request_id: _two, ...unknownBody } = expectProblem(unknown, 404, 'not_found');
      expect(foreignBody).toEqual(unknownBody);
      expect([...theirs.headers.keys()].sort()).toEqual([...unknown.headers.keys()].sort());
    }
    const head = await stranger.tus('HEAD', `/files/${foreign}`);
    expect(head.status).toBe(404);
    expect(head.headers.get('upload-offset')).toBeNull();
    expectStatus(await owner.post(`/api/uploads/${foreign}/finalize`, { filename: uniqueName() }), 201);
  });
});
