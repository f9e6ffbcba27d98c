import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import pg from 'pg';
import { Client, expectStatus, logIn, logInAs } from '@stowage/tests/support/client';
import type { Answer } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { postFrom } from '@stowage/tests/support/odd-http';
import { expectProblem, expectRetryAfter } from '@stowage/tests/support/problems';
import { MemoryWatch } from '@stowage/tests/support/process-memory';
import { unknownId } from '@stowage/tests/support/routes';
import { startBeside } from '@stowage/tests/support/beside';
import type { Beside } from '@stowage/tests/support/beside';
import { adminPassword, startSystem } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';
import { leastDifference, timeDifference } from '@stowage/tests/support/timing';
import { inBatches } from '@stowage/tests/support/tree';
import { makeUpload } from '@stowage/tests/support/uploads';

const limitMs = 5;
const samples = 200;

describe('With generous limits', () => {
  let system: System;
  let root: Client;
  let anonymous: Client;

  beforeAll(async () => {
    system = await startSystem(mode(), {
      STOWAGE_LOGIN_FAILURES_PER_USER: '1000',
      STOWAGE_LOGIN_FAILURES_PER_ADDRESS: '100000',
    });
    root = await logIn(system.url);
    anonymous = new Client(system.url);
  });

  afterAll(() => system.close());

  function attempt(username: string, password: string): Promise<Answer> {
    return anonymous.post('/api/auth/login', { username, password });
  }

  test('200 logins at once take 128 MiB at most, and others are served meanwhile (T02)', async () => {
    await attempt('admin', adminPassword);
    const watch = await MemoryWatch.start(new Map([['gateway', await system.pidOf('gateway')]]));
    let others = 0;
    try {
      const logins = Array.from({ length: 200 }, (_, n) =>
        attempt(n % 4 === 3 ? 'nobody' : 'admin', n % 2 === 0 ? adminPassword : `wrong password ${n}`),
      );
      let done = false;
      const all = Promise.all(logins).finally(() => {
        done = true;
      });
      while (!done) {
        expectStatus(await root.get('/api/auth/me'), 200);
        others += 1;
      }
      const answers = await all;
      for (const [n, answer] of answers.entries()) {
        const right = n % 2 === 0;
        expect([right ? 200 : 401, 429, 503]).toContain(answer.status);
        if (answer.status === 429 || answer.status === 503) expectRetryAfter(answer);
      }
      expect(answers.filter(({ status }) => status === 200).length).toBeGreaterThan(0);
      expect(others).toBeGreaterThan(20);
      const { gateway = Infinity } = await watch.growth();
      expect(gateway).toBeLessThanOrEqual(128);
    } finally {
      watch.stop();
    }
  });

  test('an unknown user, a disabled one and a wrong password take the same time (T04)', async () => {
    const disabled = await logInAs(root, 'viewer', 'disabled');
    const { id } = (await disabled.get('/api/auth/me')).json['user'];
    expectStatus(await root.call('PATCH', `/api/users/${id}`, { body: { disabled: true } }), 200);
    const wrong = (): Promise<Answer> => attempt('admin', 'a wrong password');
    const unknown = (): Promise<Answer> => attempt('nobody at all', 'a wrong password');
    const shut = (): Promise<Answer> => attempt('disabled', 'password of disabled');
    for (const call of [wrong, unknown, shut]) expectProblem(await call(), 401, 'invalid_credentials');
    const bounds = { samples, enoughMs: limitMs };
    expect(await leastDifference(wrong, unknown, bounds)).toBeLessThan(limitMs);
    expect(await leastDifference(wrong, shut, { samples: 30, enoughMs: limitMs })).toBeLessThan(limitMs);
    // A login without the work of a hash, as this would show one.
    const idle = (): Promise<Answer> => anonymous.post('/api/auth/login', { username: 'admin' });
    expect(Math.abs(await timeDifference(wrong, idle, 10))).toBeGreaterThan(limitMs);
  }, 180_000);

  test('another user’s upload and an unknown one take the same time (T08)', async () => {
    const owner = await logInAs(root, 'editor', 'owner');
    const stranger = await logInAs(root, 'editor', 'stranger');
    const upload = await makeUpload(owner, { length: 9, body: Buffer.from('mine') });
    const calls: ((uploadId: string) => Promise<Answer>)[] = [
      (uploadId) => stranger.tus('HEAD', `/files/${uploadId}`),
      (uploadId) => stranger.get(`/api/uploads/${uploadId}`),
      (uploadId) => stranger.tus('DELETE', `/files/${uploadId}`),
      (uploadId) => stranger.post(`/api/uploads/${uploadId}/finalize`),
    ];
    for (const call of calls) {
      expectStatus(await call(upload.id), 404);
      const bounds = { samples, enoughMs: limitMs };
      expect(
        await leastDifference(
          () => call(upload.id),
          () => call(unknownId),
          bounds,
        ),
      ).toBeLessThan(limitMs);
    }
  });
});

describe('Through two gateways', () => {
  const perUser = 10;
  const perAddress = 20;
  let system: System;
  let second: Beside;

  beforeAll(async () => {
    system = await startSystem('services', {
      STOWAGE_LOGIN_FAILURES_PER_USER: String(perUser),
      STOWAGE_LOGIN_FAILURES_PER_ADDRESS: String(perAddress),
    });
    second = await startBeside(system, 'gateway');
  }, 120_000);

  afterAll(async () => {
    await second.close();
    await system.close();
  });

  /** By turns through both; gives how many were looked at, and that all others were refused unread. */
  async function guess(count: number, username: (n: number) => string, from: string): Promise<number> {
    const urls = [system.url, second.url];
    const attempts = Array.from({ length: count }, (_, n) => n);
    const answers = await inBatches(attempts, (n) =>
      postFrom(String(urls[n % 2]), '/api/auth/login', { username: username(n), password: `guess ${n}` }, from),
    );
    const refused = answers.filter(({ status }) => status === 429);
    for (const answer of refused.slice(0, 5)) expectRetryAfter(answer);
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([401, 429]));
    return count - refused.length;
  }

  test('1,000 wrong passwords for one name get no more tries than one gateway gives (T03)', async () => {
    expect(await guess(1_000, () => 'admin', '127.0.0.31')).toBe(perUser);
  });

  test('1,000 names from one address get no more tries than one gateway gives (T03)', async () => {
    expect(await guess(1_000, (n) => `user${n}`, '127.0.0.32')).toBe(perAddress);
  });

  test('who is shut out at one is shut out at the other, with the right password too; others are not (T03)', async () => {
    const right = { username: 'admin', password: adminPassword };
    for (const url of [system.url, second.url]) {
      expectProblem(await postFrom(url, '/api/auth/login', right, '127.0.0.31'), 429, 'rate_limited');
      expectStatus(await postFrom(url, '/api/auth/login', right, '127.0.0.33'), 200);
    }
  });

  test('nobody gets in while guesses can not be counted (T03)', async () => {
    const database = new pg.Client({ connectionString: system.databaseUrl });
    await database.connect();
    const right = { username: 'admin', password: adminPassword };
    try {
      await database.query('alter table identity.login_attempts rename to away');
      for (const url of [system.url, second.url])
        expectProblem(await postFrom(url, '/api/auth/login', right, '127.0.0.34'), 500, 'internal');
    } finally {
      await database.query('alter table identity.away rename to login_attempts');
      await database.end();
    }
    expectStatus(await postFrom(second.url, '/api/auth/login', right, '127.0.0.34'), 200);
  });

  test('a logout, a new role and a removal at one are known to the other at the next request (T05, T06)', async () => {
    const root = await logIn(system.url);
    const there = new Client(second.url, root.token);
    const user = await logInAs(root, 'editor', 'walker');
    const { id } = expectStatus(await new Client(second.url, user.token).get('/api/auth/me'), 200).json['user'];
    expectStatus(await there.call('PATCH', `/api/users/${id}`, { body: { role: 'viewer' } }), 200);
    expectProblem(await user.get('/api/auth/me'), 401, 'unauthenticated');
    const again = await logIn(second.url, 'walker', 'password of walker');
    expectProblem(await new Client(system.url, again.token).post('/api/directories', { name: 'x' }), 403, 'forbidden');
    expectStatus(await root.delete(`/api/users/${id}`), 204);
    expectProblem(await again.get('/api/auth/me'), 401, 'unauthenticated');
    expectStatus(await there.post('/api/auth/logout'), 204);
    expectProblem(await root.get('/api/auth/me'), 401, 'unauthenticated');
  });
});
