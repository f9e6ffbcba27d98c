import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { Client, expectStatus, logIn, logInAs, uploadIdOf, uploadMetadata } from '@stowage/tests/support/client';
import type { Answer, Json } from '@stowage/tests/support/client';
import { baseUrl, mode } from '@stowage/tests/support/contract';
import { startOwnSystem } from '@stowage/tests/support/own-system';
import type { OwnSystem } from '@stowage/tests/support/own-system';
import { expectProblem, expectRetryAfter } from '@stowage/tests/support/problems';
import { uniqueName } from '@stowage/tests/support/system';

const perMinute = 100;
const services = ['gateway', 'catalog', 'upload', 'backend-registry', 'placement', 'export'];

describe('Health and readiness', () => {
  const anonymous = new Client(baseUrl());

  test('health tells that this process lives, its version and its age', async () => {
    const { json } = expectStatus(await anonymous.get('/api/system/health'), 200);
    expect(json).toEqual({
      status: 'ok',
      version: expect.stringMatching(/^\d+\.\d+\.\d+/),
      uptime_seconds: expect.any(Number),
    });
    expect(Number.isInteger(json['uptime_seconds'])).toBe(true);
  });

  test('ready tells of the database, each service behind the gateway and the event bus, and of no backend', async () => {
    const { json } = expectStatus(await anonymous.get('/api/system/ready'), 200);
    expect(json['status']).toBe('ready');
    const checks: Json[] = json['checks'];
    expect(checks.map((check) => check['name']).sort()).toEqual(['database', 'event_bus', ...services].sort());
    for (const check of checks) {
      expect(check).toEqual({
        name: expect.any(String),
        status: 'ready',
        latency_ms: expect.any(Number),
        detail: null,
      });
    }
  });

  test('both answer HEAD, and are never cached', async () => {
    for (const path of ['/api/system/health', '/api/system/ready']) {
      expectStatus(await anonymous.call('HEAD', path), 200);
      expect((await anonymous.get(path)).headers.get('cache-control')).toContain('no-store');
    }
  });
});

describe('The read-only mode', () => {
  let system: OwnSystem;
  let root: Client;
  let viewer: Client;
  let file: Json;
  let upload: string;

  beforeAll(async () => {
    system = await startOwnSystem(mode(), { STOWAGE_REQUESTS_PER_MINUTE: String(perMinute) });
    root = await logIn(system.url);
    viewer = await logInAs(root, 'viewer', uniqueName('viewer'));
    file = await root.putFile('kept.txt', 'kept');
    const made = await root.tus('POST', '/files', {
      'upload-length': '3',
      'upload-metadata': uploadMetadata({ filename: 'later' }),
    });
    upload = uploadIdOf(expectStatus(made, 201));
    expect(expectStatus(await root.get('/api/system/mode'), 200).json).toEqual({ mode: 'normal' });
    expectStatus(await setMode('read_only'), 200);
  });

  afterAll(() => system.close());

  function setMode(to: string, client = root): Promise<Answer> {
    return client.call('PUT', '/api/system/mode', { body: { mode: to } });
  }

  test('is told to everyone who is logged in', async () => {
    expect(expectStatus(await viewer.get('/api/system/mode'), 200).json).toEqual({ mode: 'read_only' });
  });

  test.each([
    ['making a directory', () => root.post('/api/directories', { name: 'new' })],
    ['making a directory in the wrong way', () => root.post('/api/directories', { nonsense: 1 })],
    ['renaming a file', () => root.post(`/api/files/${file['id']}/rename`, { name: 'other' })],
    ['moving a file', () => root.post(`/api/files/${file['id']}/move`, { directory_id: 'root', name: 'x' })],
    ['deleting a file', () => root.delete(`/api/files/${file['id']}`)],
    ['restoring a file', () => root.post(`/api/files/${file['id']}/restore`)],
    ['emptying the recycle bin', () => root.delete('/api/files/recycle-bin')],
    ['beginning an upload', () => root.tus('POST', '/files', { 'upload-length': '1' })],
    [
      'going on with an upload',
      () => root.tus('PATCH', `/files/${upload}`, { 'upload-offset': '0' }, Buffer.from('abc')),
    ],
    [
      'going on with an upload through POST',
      () =>
        root.tus(
          'POST',
          `/files/${upload}`,
          { 'upload-offset': '0', 'x-http-method-override': 'PATCH' },
          Buffer.from('abc'),
        ),
    ],
    ['giving an upload up', () => root.tus('DELETE', `/files/${upload}`)],
    ['finalizing an upload', () => root.post(`/api/uploads/${upload}/finalize`)],
    [
      'making a user',
      () => root.post('/api/users', { username: 'new', password: 'a good long password', role: 'viewer' }),
    ],
    ['starting jobs', () => root.post('/api/jobs/run-pending')],
  ])('%s is 503 with Retry-After', async (_what, write) => {
    const answer = await write();
    expectProblem(answer, 503, 'unavailable');
    expectRetryAfter(answer);
  });

  test('who may not write learns that first', async () => {
    expectProblem(await viewer.post('/api/directories', { name: 'new' }), 403, 'forbidden');
    expectProblem(await new Client(system.url).post('/api/directories', { name: 'new' }), 401, 'unauthenticated');
    expectProblem(await setMode('normal', viewer), 403, 'forbidden');
  });

  test('reading goes on', async () => {
    expectStatus(await root.get('/api/directories/root/children'), 200);
    expectStatus(await root.get(`/api/files/${file['id']}`), 200);
    expect((await viewer.get(`/api/files/${file['id']}/download`)).bytes.toString()).toBe('kept');
    expect(expectStatus(await root.tus('HEAD', `/files/${upload}`), 200).headers.get('upload-offset')).toBe('0');
    expectStatus(await root.get('/api/jobs'), 200);
    expectStatus(await root.get('/api/backends'), 200);
    expectStatus(await root.get('/api/system/ready'), 200);
    expectStatus(await root.call('OPTIONS', '/files'), 204);
  });

  test('logging in and out goes on', async () => {
    const second = await logIn(system.url);
    expectStatus(await second.post('/api/auth/logout'), 204);
    expectProblem(await second.get('/api/auth/me'), 401, 'unauthenticated');
  });

  test('a mode that is none is 400', async () => {
    expectProblem(await setMode('maintenance'), 400, 'validation_failed');
    expect((await root.get('/api/system/mode')).json).toEqual({ mode: 'read_only' });
  });

  test('ends at an admin’s word', async () => {
    expect(expectStatus(await setMode('normal'), 200).json).toEqual({ mode: 'normal' });
    expectStatus(await root.post('/api/directories', { name: 'new' }), 201);
    expectStatus(await root.tus('PATCH', `/files/${upload}`, { 'upload-offset': '0' }, Buffer.from('abc')), 204);
    expectStatus(await root.post(`/api/uploads/${upload}/finalize`), 201);
  });

  test('beside it, requests above a user’s limit are 429 until its minute is over, and only that user’s', async () => {
    const client = await logInAs(root, 'viewer', uniqueName('viewer'));
    const answers = await Promise.all(Array.from({ length: perMinute + 5 }, () => client.get('/api/system/mode')));
    const refused = answers.filter(({ status }) => status !== 200);
    expect(refused).toHaveLength(5);
    for (const answer of refused) {
      expectProblem(answer, 429, 'rate_limited');
      expect(expectRetryAfter(answer)).toBeLessThanOrEqual(60);
      expect(answer.headers.get('ratelimit-limit') ?? answer.headers.get('ratelimit')).toMatch(/100/);
    }
    expect(answers[0]?.headers.get('ratelimit-remaining') ?? answers[0]?.headers.get('ratelimit')).toMatch(/\d/);
    expectStatus(await root.get('/api/auth/me'), 200);
  });
});
