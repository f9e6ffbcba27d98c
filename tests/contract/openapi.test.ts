import { beforeAll, describe, expect, test } from '@jest/globals';
import { Client, expectStatus, uploadIdOf, uploadMetadata } from '@stowage/tests/support/client';
import type { Answer, Json } from '@stowage/tests/support/client';
import { admin, baseUrl } from '@stowage/tests/support/contract';
import { Description, piecesOf } from '@stowage/tests/support/openapi';
import { accessOfRoutes, ofTheInterface, unknownId } from '@stowage/tests/support/routes';
import { uniqueName } from '@stowage/tests/support/system';

const anonymous = new Client(baseUrl());
let description: Description;
let root: Client;

beforeAll(async () => {
  description = await Description.of(anonymous);
  root = await admin();
});

describe('The OpenAPI document', () => {
  test('is OpenAPI 3.1 with a title, a version and a licence', () => {
    const { document } = description;
    expect(document['openapi']).toMatch(/^3\.1\.\d+$/);
    expect(document['info']).toMatchObject({
      title: 'Stowage',
      version: expect.stringMatching(/^\d+\.\d+\.\d+/),
      license: { name: 'Apache-2.0' },
    });
    expect(document['servers'].length).toBeGreaterThan(0);
    for (const { url } of document['servers']) expect(url).not.toMatch(/localhost|127\.0\.0\.1/);
  });

  test('needs no token and is JSON', async () => {
    const answer = expectStatus(await anonymous.get('/api/openapi.json'), 200);
    expect(answer.headers.get('content-type')).toMatch(/^application\/json/);
  });

  test('describes every route of the interface', () => {
    expect(description.operations().map(({ route }) => route)).toEqual(expect.arrayContaining(ofTheInterface));
  });

  test('says of each route what it does, and whether it needs a token', () => {
    for (const { route, operation } of description.operations()) {
      expect({ route, ...operation }).toMatchObject({
        route,
        summary: expect.stringMatching(/\S/),
        tags: [expect.stringMatching(/\S/)],
      });
      const security = operation['security'] ?? description.document['security'];
      expect({ route, security }).toEqual({
        route,
        security: accessOfRoutes[route] === 'anybody' ? [] : [{ bearer: [] }],
      });
    }
    expect(description.document['components'].securitySchemes.bearer).toMatchObject({ type: 'http', scheme: 'bearer' });
  });

  test('declares the parameters that stand in each path, and no others', () => {
    for (const { route, path, operation } of description.operations()) {
      const inPath = [...path.matchAll(/\{(\w+)\}/g)].map((match) => match[1]);
      const parameters: Json[] = operation['parameters'] ?? [];
      const declared = parameters.filter((parameter) => parameter['in'] === 'path');
      expect({ route, names: declared.map((parameter) => parameter['name']) }).toEqual({ route, names: inPath });
      for (const parameter of parameters) expect(parameter['schema']).toEqual(expect.any(Object));
      for (const parameter of declared) expect(parameter['required']).toBe(true);
    }
  });

  test('has only references that lead somewhere', () => {
    for (const { piece } of piecesOf(description.document)) {
      const reference = piece['$ref'];
      if (reference === undefined) continue;
      expect(reference).toMatch(/^#\/components\/schemas\/\w+$/);
      expect(description.resolve(String(reference).slice(1))).toEqual(expect.any(Object));
    }
  });

  test('has schemas that are JSON Schema, with examples that fit them', () => {
    for (const { pointer, piece } of piecesOf(description.document)) {
      if (!/\/(schema|schemas\/\w+|properties\/\w+|items)$/.test(pointer) || pointer.includes('/examples/')) continue;
      const encoded = pointer.split('/').map(encodeURIComponent).join('/');
      if (/\/schemas\/\w+$/.test(pointer)) expect(description.faults(encoded, {})).toEqual(expect.any(Array));
      for (const example of [...(piece['examples'] ?? []), ...('default' in piece ? [piece['default']] : [])]) {
        expect({ pointer, example, faults: description.faults(encoded, example) }).toEqual({
          pointer,
          example,
          faults: [],
        });
      }
    }
  });

  test('names its types', () => {
    const names = [
      'Problem',
      'Login',
      'Me',
      'User',
      'Directory',
      'File',
      'FileWithPlacement',
      'Upload',
      'Backend',
      'Job',
      'Health',
      'Readiness',
      'Mode',
      'Children',
      'RecycleBin',
    ];
    expect(Object.keys(description.document['components'].schemas)).toEqual(expect.arrayContaining(names));
  });

  test('promises every field of an answer: none is ever left out', () => {
    for (const [name, schema] of Object.entries<Json>(description.document['components'].schemas)) {
      if (name === 'Problem') continue;
      for (const { pointer, piece } of piecesOf(schema)) {
        if (piece['type'] !== 'object' || !piece['properties']) continue;
        const promised = [...(piece['required'] ?? [])].sort();
        expect({ name, pointer, promised }).toEqual({
          name,
          pointer,
          promised: Object.keys(piece['properties']).sort(),
        });
      }
    }
  });

  test('says of each body whether it may be left out', () => {
    const needsBody = (route: string): unknown =>
      description.operations().find((operation) => operation.route === route)?.operation['requestBody']?.required;
    expect(needsBody('POST /api/directories')).toBe(true);
    expect(needsBody('POST /api/auth/logout')).toBe(false);
  });

  test('needs no parameter that has a default', () => {
    for (const { route, operation } of description.operations()) {
      for (const { name, schema, required } of operation['parameters'] ?? [])
        expect({ route, name, required: required && 'default' in schema }).toEqual({ route, name, required: false });
    }
  });

  test('says that content has the type of its file', () => {
    const typesOf = (route: string): string[] =>
      Object.keys(
        description.operations().find((operation) => operation.route === route)?.operation['responses'][200].content,
      );
    expect(typesOf('GET /api/files/{file_id}/download')).toEqual(['*/*']);
    expect(typesOf('GET /api/files/{file_id}/preview')).toEqual(['image/webp', 'text/plain']);
  });

  test('says which headers a tus request needs', () => {
    const append = description.operations().find(({ route }) => route === 'PATCH /files/{upload_id}')?.operation;
    const needed = append?.['parameters'].filter(
      (parameter: Json) => parameter['in'] === 'header' && parameter['required'],
    );
    expect(needed.map((parameter: Json) => parameter['name'])).toEqual(['Tus-Resumable', 'Upload-Offset']);
  });

  test('takes no unknown field in any request', () => {
    for (const { route, operation } of description.operations()) {
      const schema: Json | undefined = operation['requestBody']?.content?.['application/json']?.schema;
      if (schema) expect({ route, open: schema['additionalProperties'] }).toEqual({ route, open: false });
    }
  });

  test('describes problems with an example of each code, under the status that it has', () => {
    const codes: string[] = description.document['components'].schemas.Problem.properties.code.enum;
    for (const { route, operation } of description.operations()) {
      for (const [status, response] of Object.entries<Json>(operation['responses'])) {
        if (Number(status) < 400 || route === 'GET /api/system/ready') continue;
        const content = response['content']?.['application/problem+json'];
        expect({ route, status, schema: content?.schema }).toEqual({
          route,
          status,
          schema: { $ref: '#/components/schemas/Problem' },
        });
        for (const [code, { value }] of Object.entries<Json>(content.examples)) {
          expect(value).toMatchObject({ code, status: Number(status), type: `urn:stowage:problem:${code}` });
          expect(codes).toContain(code);
          expect(description.faults('/components/schemas/Problem', value)).toEqual([]);
        }
      }
    }
  });

  test('tells of 401, 403 and 503 wherever they can be, and of what a route can refuse', () => {
    for (const { route, operation } of description.operations()) {
      const statuses = Object.keys(operation['responses']);
      if (accessOfRoutes[route] !== 'anybody')
        expect({ route, statuses }).toEqual({ route, statuses: expect.arrayContaining(['401', '403', '503']) });
      if (operation['requestBody'])
        expect({ route, statuses }).toEqual({ route, statuses: expect.arrayContaining(['400', '413', '415']) });
      if (/\{\w+_id\}/.test(route) && !route.startsWith('OPTIONS'))
        expect({ route, statuses }).toEqual({ route, statuses: expect.arrayContaining(['404']) });
    }
  });

  test('gives answers without a body no content', () => {
    for (const { route, operation } of description.operations()) {
      for (const status of ['204', '304'])
        expect({ route, content: operation['responses'][status]?.content }).toEqual({ route, content: undefined });
    }
  });

  test('describes the two headers of changes where they count', () => {
    const headersOf = (route: string): string[] => {
      const found =
        description.operations().find((operation) => operation.route === route)?.operation['parameters'] ?? [];
      return found
        .filter((parameter: Json) => parameter['in'] === 'header')
        .map((parameter: Json) => parameter['name']);
    };
    expect(headersOf('POST /api/directories')).toContain('Idempotency-Key');
    expect(headersOf('POST /api/files/{file_id}/rename')).toEqual(
      expect.arrayContaining(['Idempotency-Key', 'If-Match']),
    );
    expect(headersOf('DELETE /api/directories/{directory_id}')).toEqual(
      expect.arrayContaining(['Idempotency-Key', 'If-Match']),
    );
    expect(headersOf('POST /api/users')).not.toContain('Idempotency-Key');
    expect(headersOf('GET /api/files/{file_id}')).not.toContain('If-Match');
  });
});

describe('Real answers are what the document says', () => {
  /** Checks status, type, schema, and that no field goes undescribed. */
  function expectDescribed(route: string, answer: Answer, status: number): Json {
    expectStatus(answer, status);
    const type = answer.headers.get('content-type')?.split(';', 1)[0];
    const pointer = description.schemaOfAnswer(route, status, type);
    expect({ route, status, type, described: pointer !== null }).toEqual({ route, status, type, described: true });
    expect({ route, faults: description.faults(pointer ?? '', answer.json) }).toEqual({ route, faults: [] });
    const schema = description.resolve((pointer ?? '').split('/').map(decodeURIComponent).join('/'));
    if (type === 'application/json')
      expect(Object.keys(answer.json).sort()).toEqual(Object.keys(schema['properties']).sort());
    return answer.json;
  }

  test('for sessions and users', async () => {
    const [username, password] = [uniqueName('user'), 'a good long password'];
    const user = expectDescribed(
      'POST /api/users',
      await root.post('/api/users', { username, password, role: 'viewer' }),
      201,
    );
    const login = expectDescribed(
      'POST /api/auth/login',
      await anonymous.post('/api/auth/login', { username, password }),
      200,
    );
    const client = new Client(baseUrl(), login['access_token']);
    expectDescribed('GET /api/auth/me', await client.get('/api/auth/me'), 200);
    expectDescribed('GET /api/users', await root.get('/api/users?limit=3'), 200);
    expectDescribed(
      'PATCH /api/users/{user_id}',
      await root.call('PATCH', `/api/users/${user['id']}`, { body: { disabled: true } }),
      200,
    );
    expectDescribed('POST /api/users', await root.post('/api/users', { username, password, role: 'viewer' }), 409);
    expectDescribed('GET /api/auth/me', await client.get('/api/auth/me'), 401);
  });

  test('for directories, files and the recycle bin', async () => {
    const directory = expectDescribed(
      'POST /api/directories',
      await root.post('/api/directories', { name: uniqueName() }),
      201,
    );
    const file = await root.putFile('a.txt', 'hello', { directory: directory['id'], type: 'text/plain' });
    const [d, f] = [`/api/directories/${directory['id']}`, `/api/files/${file['id']}`];
    expectDescribed('GET /api/directories/{directory_id}', await root.get(d), 200);
    expectDescribed('GET /api/directories/{directory_id}', await root.get('/api/directories/root'), 200);
    expectDescribed('GET /api/directories/{directory_id}/children', await root.get(`${d}/children`), 200);
    expectDescribed('GET /api/files/{file_id}', await root.get(f), 200);
    expectDescribed('POST /api/files/{file_id}/rename', await root.post(`${f}/rename`, { name: 'b.txt' }), 200);
    expectDescribed(
      'POST /api/files/{file_id}/move',
      await root.post(`${f}/move`, { directory_id: directory['id'], name: 'c.txt' }),
      200,
    );
    expectDescribed('POST /api/files/{file_id}/rename', await root.post(`${f}/rename`, { nmae: 'b.txt' }), 400);
    expectDescribed(
      'POST /api/files/{file_id}/rename',
      await root.post(`${f}/rename`, { name: 'd' }, { 'if-match': '"0"' }),
      412,
    );
    expectDescribed('DELETE /api/files/{file_id}', await root.delete(f), 200);
    expectDescribed('GET /api/files/recycle-bin', await root.get('/api/files/recycle-bin'), 200);
    expectDescribed('GET /api/files/{file_id}', await root.get(f), 200);
    expectDescribed('POST /api/files/{file_id}/restore', await root.post(`${f}/restore`), 200);
    expectDescribed('DELETE /api/directories/{directory_id}', await root.delete(d), 200);
    expectDescribed('GET /api/files/{file_id}/download', await root.get(`${f}/download`), 409);
    expectDescribed('POST /api/directories/{directory_id}/restore', await root.post(`${d}/restore`), 200);
    expectDescribed('GET /api/directories/{directory_id}', await root.get(`/api/directories/${unknownId}`), 404);
  });

  test('for uploads', async () => {
    const headers = {
      'upload-length': '3',
      'upload-metadata': uploadMetadata({ filename: uniqueName(), filetype: 'text/plain' }),
    };
    const id = uploadIdOf(expectStatus(await root.tus('POST', '/files', headers), 201));
    expectDescribed('GET /api/uploads/{upload_id}', await root.get(`/api/uploads/${id}`), 200);
    expectDescribed('POST /api/uploads/{upload_id}/finalize', await root.post(`/api/uploads/${id}/finalize`), 409);
    expectDescribed(
      'PATCH /files/{upload_id}',
      await root.tus('PATCH', `/files/${id}`, { 'upload-offset': '1' }, Buffer.from('ab')),
      409,
    );
    expectStatus(await root.tus('PATCH', `/files/${id}`, { 'upload-offset': '0' }, Buffer.from('abc')), 204);
    expectDescribed('POST /api/uploads/{upload_id}/finalize', await root.post(`/api/uploads/${id}/finalize`), 201);
    expectDescribed('POST /api/uploads/{upload_id}/finalize', await root.post(`/api/uploads/${id}/finalize`), 200);
    expectDescribed('POST /files', await root.call('POST', '/files', { headers: { 'upload-length': '1' } }), 412);
  });

  test('for backends, jobs and the system', async () => {
    const backends = expectDescribed('GET /api/backends', await root.get('/api/backends'), 200);
    expectDescribed('GET /api/backends/{backend_id}', await root.get(`/api/backends/${backends['items'][0].id}`), 200);
    expectDescribed(
      'POST /api/jobs/run-pending',
      await root.post('/api/jobs/run-pending', { kinds: ['prune_history'] }),
      200,
    );
    const jobs = expectDescribed('GET /api/jobs', await root.get('/api/jobs'), 200);
    for (const { id } of jobs['items'].slice(0, 3))
      expectDescribed('GET /api/jobs/{job_id}', await root.get(`/api/jobs/${id}`), 200);
    expectDescribed('GET /api/system/health', await anonymous.get('/api/system/health'), 200);
    expectDescribed('GET /api/system/ready', await anonymous.get('/api/system/ready'), 200);
    expectDescribed('GET /api/system/mode', await root.get('/api/system/mode'), 200);
    expectDescribed('PUT /api/system/mode', await root.call('PUT', '/api/system/mode', { body: {} }), 400);
  });
});

describe('The page of the description', () => {
  test('needs no token, and loads nothing from another host', async () => {
    const page = expectStatus(await anonymous.get('/api/docs'), 200);
    expect(page.headers.get('content-type')).toMatch(/^text\/html/);
    const html = page.bytes.toString();
    const links = [...html.matchAll(/(?:src|href)="([^"]+)"/g)].map((match) => match[1] ?? '');
    expect(links.length).toBeGreaterThan(3);
    for (const link of links) {
      const { origin, pathname } = new URL(link, `${baseUrl()}/api/docs`);
      expect(origin).toBe(baseUrl());
      expectStatus(await anonymous.get(pathname), 200);
    }
    expect(html).not.toMatch(/https?:\/\//);
  });

  test('lets a browser ask this host only, on plain HTTP too', async () => {
    const { headers } = await anonymous.get('/api/docs');
    const policy = headers.get('content-security-policy') ?? '';
    expect(policy).toContain("default-src 'self'");
    expect(policy).not.toMatch(/https?:|\*|unsafe-eval|upgrade-insecure-requests|[a-z]\.[a-z]/);
    const script = (await anonymous.get('/api/docs/static/swagger-initializer.js')).bytes.toString();
    expect(script).toMatch(/validatorUrl: null/);
    expectStatus(await anonymous.get('/api/docs/json'), 200);
  });

  test('shows no more files than its own', async () => {
    for (const path of [
      '/api/docs/static/../../../package.json',
      '/api/docs/static/..%2f..%2fpackage.json',
      '/api/docs/static/%2e%2e/%2e%2e/package.json',
      '/api/docs/static/logo.svg%00',
      '/api/docs/static/.git/config',
    ]) {
      expect((await anonymous.get(path)).status).toBeGreaterThanOrEqual(400);
    }
  });
});
