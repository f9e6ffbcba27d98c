import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { Client, expectStatus, logIn, until } from '@stowage/tests/support/client';
import type { Answer, Json } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { FickleProxy } from '@stowage/tests/support/fickle-proxy';
import type { Mood } from '@stowage/tests/support/fickle-proxy';
import { expectProblem, expectRetryAfter } from '@stowage/tests/support/problems';
import { adminPassword, startSystem, uniqueName } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';
import { startTestDatabase } from '@stowage/tests/support/test-database';
import type { TestDatabase } from '@stowage/tests/support/test-database';

const limitMs = 15_000;
let database: TestDatabase;
let proxy: FickleProxy;
let system: System;
let root: Client;
let file: Json;

beforeAll(async () => {
  database = await startTestDatabase();
  proxy = await FickleProxy.start(database.url);
  system = await startSystem(mode(), { STOWAGE_DATABASE_URL: proxy.url });
  root = await logIn(system.url);
  file = await root.putFile('kept.txt', 'kept');
});

afterAll(async () => {
  proxy.turn('answers');
  await system.close();
  await proxy.close();
  await database.close();
});

describe.each<Mood>(['refuses', 'is silent'])('A database that %s', (mood) => {
  test('makes every request 503 with Retry-After in time, and never 500; health goes on; then all is well again', async () => {
    const anonymous = new Client(system.url);
    const login = { username: 'admin', password: adminPassword };
    const calls: Record<string, () => Promise<Answer>> = {
      'who am I': () => root.get('/api/auth/me'),
      'logging in': () => anonymous.post('/api/auth/login', login),
      'listing users': () => root.get('/api/users'),
      'listing a directory': () => root.get('/api/directories/root/children'),
      'making a directory': () => root.post('/api/directories', { name: uniqueName() }),
      'downloading a file': () => root.get(`/api/files/${file['id']}/download`),
      'beginning an upload': () => root.tus('POST', '/files', { 'upload-length': '1' }),
      'listing jobs': () => root.get('/api/jobs'),
    };
    proxy.turn(mood);
    try {
      const refused = Object.entries(calls).map(async ([what, call]) => {
        const start = performance.now();
        const answer = await call();
        const inTime = performance.now() - start < limitMs;
        expect({ what, status: answer.status, inTime }).toEqual({ what, status: 503, inTime: true });
        expectProblem(answer, 503, 'unavailable');
        expectRetryAfter(answer);
      });
      expectStatus(await anonymous.get('/api/system/health'), 200);
      const ready = expectStatus(await anonymous.get('/api/system/ready'), 503);
      expect(ready.json['checks']).toContainEqual(expect.objectContaining({ name: 'database', status: 'unavailable' }));
      expectRetryAfter(ready);
      await Promise.all(refused);
    } finally {
      proxy.turn('answers');
    }
    await until(async () => (await anonymous.get('/api/system/ready')).status === 200);
    for (const call of Object.values(calls)) await until(async () => (await call()).status < 300);
    expect((await root.get(`/api/files/${file['id']}/download`)).bytes.toString()).toBe('kept');
  });
});
