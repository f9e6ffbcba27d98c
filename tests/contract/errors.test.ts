import { beforeAll, describe, expect, test } from '@jest/globals';
import { Client, expectStatus } from '@stowage/tests/support/client';
import type { Answer } from '@stowage/tests/support/client';
import { admin, baseUrl } from '@stowage/tests/support/contract';
import { expectNothingInternal, expectProblem, pointersOf } from '@stowage/tests/support/problems';
import { sendOdd } from '@stowage/tests/support/odd-http';
import { unknownId } from '@stowage/tests/support/routes';
import { uniqueName } from '@stowage/tests/support/system';

const anonymous = new Client(baseUrl());
let root: Client;

beforeAll(async () => {
  root = await admin();
});

/** POSTs bytes as a JSON body, as they are. */
function postBytes(body: string | Buffer, path = '/api/directories', type = 'application/json'): Promise<Answer> {
  const raw = typeof body === 'string' ? body : new Uint8Array(body);
  return root.call('POST', path, { raw, headers: { 'content-type': type } });
}

describe('A problem document', () => {
  test('tells type, title, status, code, detail and the request’s id', async () => {
    const answer = await root.get(`/api/directories/${unknownId}`, { 'x-request-id': 'my.request_1-2' });
    expect(expectProblem(answer, 404, 'not_found')).toEqual({
      type: 'urn:stowage:problem:not_found',
      title: 'Not found',
      status: 404,
      code: 'not_found',
      detail: expect.any(String),
      request_id: 'my.request_1-2',
    });
  });

  test('comes whatever the client says it accepts', async () => {
    const answer = await root.get('/api/nothing', { accept: 'text/html, image/*' });
    expectProblem(answer, 404, 'not_found');
  });

  test('is not kept by caches', async () => {
    expect((await root.get('/api/nothing')).headers.get('cache-control')).toBe('private, no-store');
  });
});

describe('What is wrong with a value', () => {
  test.each([
    [
      'POST',
      '/api/backends',
      { name: 'a', type: 'ftp', config: {} },
      [['/type', 'must be one of local_directory, s3, webdav']],
    ],
    [
      'GET',
      '/api/jobs?state=done',
      undefined,
      [['?state', 'must be one of pending, running, succeeded, failed, cancelled']],
    ],
    [
      'POST',
      '/api/backends',
      { name: 'a', type: 's3', config: { endpoint: 1 } },
      [['/config/endpoint', 'must be string or must be null']],
    ],
    ['POST', '/api/jobs/run-pending', { limit: 0.5 }, [['/limit', 'must be integer and must be >= 1']]],
    ['POST', '/api/jobs/run-pending', [], [['', 'The body must be object.']]],
  ])('is told once, and what to send instead (%s %s %j)', async (method, path, body, told) => {
    const answer = await root.call(method, path, body === undefined ? {} : { body });
    const { errors, detail } = expectProblem(answer, 400, 'validation_failed');
    expect(errors).toEqual(told.map(([pointer, why]) => ({ pointer, detail: why })));
    expect(detail).toBe(told.map(([pointer, why]) => (pointer === '' ? why : `${pointer}: ${why}`)).join('; '));
  });
});

describe('Request ids', () => {
  const made = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

  test.each(['a', '0123.abc_DEF-9', 'x'.repeat(128)])('the client’s %s is taken', async (id) => {
    for (const path of ['/api/auth/me', '/api/system/health', '/api/nothing', '/files', '/', '/api/docs']) {
      expect((await root.get(path, { 'x-request-id': id })).headers.get('x-request-id')).toBe(id);
    }
  });

  test.each(['x'.repeat(129), 'two words', 'a/b', '<script>', 'a,b', '{}', 'naïve'])(
    'the client’s %s is not, another is made',
    async (id) => {
      const answer = await root.get('/api/nothing', { 'x-request-id': id });
      expect(answer.headers.get('x-request-id')).toMatch(made);
      expectProblem(answer, 404, 'not_found');
    },
  );

  test('of two none is taken', async () => {
    const answer = await sendOdd(baseUrl(), {
      path: '/api/auth/me',
      headers: [
        ['X-Request-Id', 'one'],
        ['X-Request-Id', 'two'],
      ],
    });
    expect(answer.headers.get('x-request-id')).toMatch(made);
  });

  test('every request has another', async () => {
    const ids = await Promise.all(
      [1, 2, 3].map(async () => (await root.get('/api/auth/me')).headers.get('x-request-id')),
    );
    expect(new Set(ids).size).toBe(3);
  });

  test('one stands on answers to addresses that can not be read as well', async () => {
    for (const path of ['/api/directories/%zz', '/api/files/%', '/%ff']) {
      const answer = await sendOdd(baseUrl(), {
        path,
        headers: [
          ['Authorization', `Bearer ${root.token}`],
          ['X-Request-Id', 'mine'],
        ],
      });
      expect([400, 404]).toContain(answer.status);
      expect(answer.headers.get('x-request-id')).toBe('mine');
      expectProblem(answer, answer.status, answer.status === 400 ? 'validation_failed' : 'not_found');
      expect(answer.headers.get('cache-control')).toBe('private, no-store');
      expect(answer.headers.get('x-content-type-options')).toBe('nosniff');
    }
  });
});

describe('A body that is not what the route takes', () => {
  test.each([
    ['broken JSON', '{"name": '],
    ['JSON with something after it', '{"name": "a"} x'],
    ['single quotes', "{'name': 'a'}"],
    ['a comment', '{"name": "a" /* b */}'],
    ['NaN', '{"name": NaN}'],
    ['a number beyond all bounds', '{"name": 1e400}'],
    ['a number beyond all bounds in a field that is unknown', '{"name": "a", "x": [-1e999]}'],
    ['100,000 arrays in each other', '['.repeat(100_000) + ']'.repeat(100_000)],
    ['100,000 objects in each other', '{"a":'.repeat(100_000) + '1' + '}'.repeat(100_000)],
    ['33 levels', `{"name": ${'['.repeat(32)}${']'.repeat(32)}}`],
    ['__proto__', '{"name": "a", "__proto__": {"parent_id": "root"}}'],
    ['__proto__ further down', '{"name": {"__proto__": {"x": 1}}}'],
    ['__proto__ in other letters', '{"name": "a", "\\u005f_proto__": {}}'],
    ['UTF-8 cut off', Buffer.from([0x7b, 0x22, 0xe2, 0x82, 0x22, 0x7d])],
    ['a byte that is never UTF-8', Buffer.from('{"name": "\xff"}', 'latin1')],
    ['a surrogate in UTF-8', Buffer.from([0x7b, 0x22, 0x61, 0x22, 0x3a, 0x22, 0xed, 0xa0, 0x80, 0x22, 0x7d])],
    ['UTF-16', Buffer.from('{"name": "a"}', 'utf16le')],
  ])('%s is 400', async (_what, body) => {
    expectProblem(await postBytes(body), 400, 'validation_failed');
  });

  test.each([
    ['an array', '[]', ''],
    ['a string', '"name"', ''],
    ['a number', '1', ''],
    ['no name', '{}', '/name'],
    ['a number for a name', '{"name": 1}', '/name'],
    ['null for a name', '{"name": null}', '/name'],
    ['an object for a name', '{"name": {"toString": "x"}}', '/name'],
    ['an unknown field', '{"name": "a", "nmae": "b"}', '/nmae'],
    ['an unknown field with a slash', '{"name": "a", "x/y~z": 1}', '/x~1y~0z'],
    ['constructor', '{"name": "a", "constructor": {"prototype": {"x": 1}}}', '/constructor'],
    ['prototype', '{"name": "a", "prototype": {}}', '/prototype'],
    ['hasOwnProperty', '{"name": "a", "hasOwnProperty": 1}', '/hasOwnProperty'],
    ['a word that is none of those allowed', '{"name": "a", "on_conflict": "overwrite"}', '/on_conflict'],
    ['an id in capitals', `{"name": "a", "parent_id": "${unknownId.toUpperCase()}"}`, '/parent_id'],
    ['an id that is no version 7', '{"name": "a", "parent_id": "0193fa2c-7a3e-4cc1-9f0e-0d5f1a2b3c4d"}', '/parent_id'],
  ])('%s is 400 and says where', async (_what, body, pointer) => {
    const problem = expectProblem(await postBytes(body), 400, 'validation_failed');
    expect(pointersOf(problem)).toContain(pointer);
    for (const error of problem['errors']) expect(error.detail).toMatch(/\S/);
  });

  test('tells all faults at once', async () => {
    const problem = expectProblem(
      await postBytes('{"name": 1, "parent_id": "x", "other": 2}'),
      400,
      'validation_failed',
    );
    expect(new Set(pointersOf(problem))).toEqual(new Set(['/name', '/parent_id', '/other']));
  });

  test('nobody’s prototype changes', async () => {
    await postBytes('{"name": "a", "constructor": {"prototype": {"role": "admin"}}}');
    await postBytes('{"name": "a", "__proto__": {"role": "admin"}}');
    expectProblem(await anonymous.get('/api/users'), 401, 'unauthenticated');
    expect(expectStatus(await root.get('/api/auth/me'), 200).json['user']).not.toHaveProperty('polluted');
  });

  test('a string of 10 MB is 413, and the client gets to read that', async () => {
    const body = JSON.stringify({ name: 'x'.repeat(10_000_000) });
    for (let i = 0; i < 5; i += 1) expectProblem(await postBytes(body), 413, 'payload_too_large');
  });

  test('more than 1 MiB is 413 even when its length was not told', async () => {
    const piece = Buffer.alloc(64 * 1024, 0x20);
    const stream = new ReadableStream({
      start(controller) {
        for (let i = 0; i < 32; i += 1) controller.enqueue(piece);
        controller.close();
      },
    });
    const init: RequestInit = {
      method: 'POST',
      body: stream,
      duplex: 'half',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${root.token}` },
    };
    const answer = await fetch(`${baseUrl()}/api/directories`, init);
    expect(answer.status).toBe(413);
    expect(await answer.json()).toMatchObject({ code: 'payload_too_large' });
  });

  test('just under 1 MiB is looked at', async () => {
    const problem = expectProblem(
      await postBytes(JSON.stringify({ name: 'x'.repeat(1_000_000) })),
      400,
      'validation_failed',
    );
    expect(pointersOf(problem)).toEqual(['/name']);
    expect(problem['detail'].length).toBeLessThan(2_000);
  });

  test.each([
    'text/plain',
    'application/x-www-form-urlencoded',
    'multipart/form-data; boundary=x',
    'application/xml',
    'application/jsonx',
    'x',
    'application/merge-patch+json',
  ])('a body of %s is 415', async (type) => {
    expectProblem(await postBytes('{"name": "a"}', '/api/directories', type), 415, 'unsupported_media_type');
  });

  test('a body of no type is 415', async () => {
    const headers: [string, string][] = [['Authorization', `Bearer ${root.token}`]];
    expectProblem(
      await sendOdd(baseUrl(), { method: 'POST', path: '/api/directories', headers, body: '{"name":"a"}' }),
      415,
      'unsupported_media_type',
    );
  });

  test('JSON may say that it is UTF-8', async () => {
    expectStatus(
      await postBytes(JSON.stringify({ name: uniqueName() }), '/api/directories', 'application/json; charset=utf-8'),
      201,
    );
    expectStatus(await postBytes(JSON.stringify({ name: uniqueName() }), '/api/directories', 'Application/JSON'), 201);
  });

  test('no body at all is {}', async () => {
    const { id } = await root.makeDirectory(uniqueName());
    expectStatus(await root.delete(`/api/directories/${id}`), 200);
    expectStatus(await root.call('POST', `/api/directories/${id}/restore`), 200);
    const problem = expectProblem(await root.call('POST', '/api/directories'), 400, 'validation_failed');
    expect(pointersOf(problem)).toEqual(['/name']);
    expectStatus(
      await root.call('POST', '/api/auth/logout', { headers: { 'content-type': 'application/json' }, raw: '' }),
      204,
    );
    root = await admin();
  });
});

describe('Addresses', () => {
  test.each([
    '/',
    '/favicon.ico',
    '/admin',
    '/metrics',
    '/debug',
    '/debug/pprof',
    '/.env',
    '/.git/config',
    '/server-status',
    '/phpinfo.php',
  ])('%s is 404', async (path) => {
    expectProblem(await anonymous.get(path), 404, 'not_found');
  });

  test.each([
    '/api',
    '/api/',
    '/api/nothing',
    '/api/metrics',
    '/api/debug',
    '/api/system',
    '/api/system/env',
    '/api/directories/root/nothing',
    '/api/directories/root/',
    '/API/auth/me',
    '/files/a/b',
  ])('%s is 404 for whoever is logged in', async (path) => {
    expectProblem(await root.get(path), 404, 'not_found');
  });

  test.each([
    '1',
    'ROOT',
    unknownId.toUpperCase(),
    `${unknownId}0`,
    '0193fa2c-7a3e-4cc1-9f0e-0d5f1a2b3c4d',
    '..%2f..%2fetc',
    '%00',
    "'%20or%20'1'='1",
    'x'.repeat(150),
    'x'.repeat(5_000),
  ])('an id such as %s names nothing', async (id) => {
    expectProblem(await root.get(`/api/files/${id}`), 404, 'not_found');
    expectProblem(await root.get(`/api/directories/${id}`), 404, 'not_found');
    expectProblem(await root.post(`/api/directories/${id}/rename`, { name: 'a' }), 404, 'not_found');
    expectProblem(await root.get(`/api/jobs/${id}`), 404, 'not_found');
    expectProblem(await root.get(`/api/backends/${id}`), 404, 'not_found');
    expectProblem(await root.get(`/api/uploads/${id}`), 404, 'not_found');
    expectProblem(
      await root.tus('PATCH', `/files/${id}`, { 'upload-offset': '0' }, Buffer.from('a')),
      404,
      'not_found',
    );
  });

  test.each([
    ['PUT', '/api/directories', ['POST']],
    ['GET', '/api/directories', ['POST']],
    ['PATCH', `/api/files/${unknownId}`, ['GET', 'HEAD', 'DELETE']],
    ['POST', '/api/auth/me', ['GET', 'HEAD']],
    ['GET', '/api/auth/login', ['POST']],
    ['POST', '/api/files/recycle-bin', ['GET', 'HEAD', 'DELETE']],
    ['GET', `/files/${unknownId}`, ['OPTIONS', 'HEAD', 'PATCH', 'DELETE', 'POST']],
    ['GET', '/files', ['OPTIONS', 'POST']],
    ['DELETE', '/api/system/health', ['GET', 'HEAD']],
    ['PROPFIND', '/api/directories/root', ['GET', 'HEAD', 'DELETE']],
    ['QUERY', '/api/directories', ['POST']],
    ['DELETE', '/api/jobs/run-pending', ['POST']],
  ])('%s %s is 405 and says what is allowed', async (method, path, allowed) => {
    const answer = await sendOdd(baseUrl(), { method, path, headers: [['Authorization', `Bearer ${root.token}`]] });
    const allow = (answer.headers.get('allow') ?? '').split(', ').sort();
    expect(allow).toEqual(expect.arrayContaining(allowed));
    expect(allow).not.toContain(method);
    expectProblem(answer, 405, 'method_not_allowed');
  });

  test('of an address that a pattern of another route matches as well, only its own methods are told', async () => {
    const answer = await sendOdd(baseUrl(), { method: 'OPTIONS', path: '/api/jobs/run-pending', headers: [] });
    expect(answer.headers.get('allow')).toBe('POST');
  });

  test('an unknown query parameter is 400 where the route takes parameters', async () => {
    const problem = expectProblem(await root.get('/api/directories/root/children?sotr=name'), 400, 'validation_failed');
    expect(pointersOf(problem)).toEqual(['?sotr']);
  });
});

test('nothing tells what the server is made of', async () => {
  for (const path of ['/', '/api/auth/me', '/api/system/health', '/api/openapi.json', '/files']) {
    const { headers, bytes } = await root.get(path);
    expect(headers.get('server')).toBeNull();
    expect(headers.get('x-powered-by')).toBeNull();
    expect([...headers.values()].join(' ')).not.toMatch(/fastify|node|express/i);
    if (path !== '/api/openapi.json') expectNothingInternal(bytes.toString());
  }
});
