import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { Client, expectStatus, logIn, until, uploadIdOf, uploadMetadata } from '@stowage/tests/support/client';
import type { Answer, Json } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { expectProblem, expectRetryAfter } from '@stowage/tests/support/problems';
import { startSystem, uniqueName } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';

/** What the contract calls "never hangs": every deadline of ours is below it. */
const limitMs = 15_000;
const behindTheGateway = ['catalog', 'upload', 'backend-registry', 'placement', 'export'];
let system: System;
let root: Client;
let file: Json;

beforeAll(async () => {
  system = await startSystem(mode());
  root = await logIn(system.url);
  // Longer than what the gateway keeps in memory.
  file = await root.putFile('kept.txt', 'kept '.repeat(20_000));
});

afterAll(() => system.close());

type Call = () => Promise<Answer>;

const create: Call = () =>
  root.tus('POST', '/files', { 'upload-length': '3', 'upload-metadata': uploadMetadata({ filename: uniqueName() }) });

/** What can not be done without a service. Some routes need several. */
const needs: Record<string, Record<string, Call>> = {
  catalog: {
    'listing a directory': () => root.get('/api/directories/root/children'),
    'reading a file': () => root.get(`/api/files/${file['id']}`),
    'making a directory': () => root.post('/api/directories', { name: uniqueName() }),
    'deleting a file': () => root.delete(`/api/files/${file['id']}`),
    'downloading a file': () => root.get(`/api/files/${file['id']}/download`),
    'looking at a file': () => root.get(`/api/files/${file['id']}/preview`),
    'listing the recycle bin': () => root.get('/api/files/recycle-bin'),
  },
  upload: {
    'beginning an upload': create,
    'asking for an upload': () => root.get('/api/uploads/0193fa2c-7a3e-7cc1-9f0e-0d5f1a2b3c4d'),
  },
  'backend-registry': { 'listing backends': () => root.get('/api/backends'), 'beginning an upload': create },
  placement: { 'listing jobs': () => root.get('/api/jobs'), 'running jobs': () => root.post('/api/jobs/run-pending') },
};

/** What goes on without any service but the gateway. */
const needsNobody: Record<string, Call> = {
  'who am I': () => root.get('/api/auth/me'),
  'listing users': () => root.get('/api/users'),
  health: () => new Client(system.url).get('/api/system/health'),
  'the description': () => new Client(system.url).get('/api/openapi.json'),
  'logging in': () =>
    new Client(system.url).post('/api/auth/login', { username: 'admin', password: 'correct horse battery staple' }),
};

async function expectRefused(what: string, call: Call): Promise<void> {
  const start = performance.now();
  const answer = await call();
  const took = performance.now() - start;
  expect({ what, status: answer.status, inTime: took < limitMs }).toEqual({ what, status: 503, inTime: true });
  expectProblem(answer, 503, 'unavailable');
  expectRetryAfter(answer);
}

function allRefused(calls: Record<string, Call>): Promise<void>[] {
  return Object.entries(calls).map(([what, call]) => expectRefused(what, call));
}

async function expectRestGoesOn(): Promise<void> {
  for (const [what, call] of Object.entries(needsNobody)) {
    const start = performance.now();
    expect({ what, status: (await call()).status }).toEqual({ what, status: 200 });
    expect(performance.now() - start).toBeLessThan(3_000);
  }
}

async function checks(): Promise<Json> {
  const { status, headers, json } = await new Client(system.url).get('/api/system/ready');
  const states = (json['checks'] as Json[]).map((check) => [check['name'], check['status']]);
  return {
    status,
    overall: json['status'],
    retry: headers.get('retry-after') !== null,
    states: Object.fromEntries(states),
  };
}

/** As a client sees it: refusals say when to come again, and then all of it works, writes as well. */
async function becomesWhole(): Promise<void> {
  await until(async () => (await checks())['status'] === 200);
  const works: Record<string, Call> = {
    'listing a directory': () => root.get('/api/directories/root/children'),
    'listing jobs': () => root.get('/api/jobs'),
    'listing backends': () => root.get('/api/backends'),
    'downloading a file': () => root.get(`/api/files/${file['id']}/download`),
    'making a directory': () => root.post('/api/directories', { name: uniqueName() }),
    'beginning an upload': create,
  };
  for (const [what, call] of Object.entries(works)) {
    await until(async () => {
      const answer = await call();
      if (answer.status === 503) return expectRetryAfter(answer) === 0;
      expect({ what, status: answer.status < 300 }).toEqual({ what, status: true });
      return true;
    }, 5_000);
  }
  expect((await root.putFile(uniqueName(), 'new'))['state']).toBe('active');
}

if (mode() === 'standalone') {
  test('in one process there is no other that could be down: the launcher is every service', async () => {
    const pids = await Promise.all(['gateway', ...behindTheGateway].map((name) => system.pidOf(name)));
    expect(new Set(pids)).toEqual(new Set([system.launcher.pid]));
    expect(await checks()).toMatchObject({ status: 200, overall: 'ready' });
  });
} else {
  describe('A service that answers no more', () => {
    test('catalog and upload: what needs them is 503 with Retry-After in time, the rest goes on, and it heals', async () => {
      const names = ['catalog', 'upload'];
      const pids = await Promise.all(names.map((name) => system.pidOf(name)));
      for (const pid of pids) process.kill(pid, 'SIGSTOP');
      try {
        const refused = names.flatMap((name) => allRefused(needs[name] ?? {}));
        await expectRestGoesOn();
        const [ready, unavailable] = ['ready', 'unavailable'];
        const states = { catalog: unavailable, upload: unavailable, placement: ready, database: ready, gateway: ready };
        expect(await checks()).toMatchObject({ status: 503, overall: unavailable, retry: true, states });
        await Promise.all(refused);
      } finally {
        for (const pid of pids) process.kill(pid, 'SIGCONT');
      }
      await becomesWhole();
      expect(await Promise.all(names.map((name) => system.pidOf(name)))).toEqual(pids);
    });

    test('backend-registry: content is 503 in time, what is known of files goes on, and it heals', async () => {
      const pid = await system.pidOf('backend-registry');
      process.kill(pid, 'SIGSTOP');
      try {
        await Promise.all([
          expectRefused('downloading a file', () => root.get(`/api/files/${file['id']}/download`)),
          expectRefused('listing backends', () => root.get('/api/backends')),
        ]);
        expectStatus(await root.get(`/api/files/${file['id']}`), 200);
      } finally {
        process.kill(pid, 'SIGCONT');
      }
      await becomesWhole();
    });
  });

  describe('A service that dies', () => {
    test('is started again, and until then what needs it is 503; so it is with all of them at once', async () => {
      const before = await Promise.all(behindTheGateway.map((name) => system.pidOf(name)));
      for (const pid of before) process.kill(pid, 'SIGKILL');
      const refused = Object.values(needs).flatMap(allRefused);
      await expectRestGoesOn();
      await Promise.all(refused);
      await becomesWhole();
      const after = await Promise.all(behindTheGateway.map((name) => system.pidOf(name)));
      expect(after.filter((pid) => before.includes(pid))).toEqual([]);
    });

    test('the gateway is started again, and tokens hold', async () => {
      const pid = await system.pidOf('gateway');
      process.kill(pid, 'SIGKILL');
      await until(() =>
        root.get('/api/auth/me').then(
          ({ status }) => status === 200,
          () => false,
        ),
      );
      await becomesWhole();
    });

    test('an upload goes on after the service that took its first bytes died', async () => {
      const headers = { 'upload-length': '6', 'upload-metadata': uploadMetadata({ filename: uniqueName() }) };
      const id = uploadIdOf(expectStatus(await root.tus('POST', '/files', headers, Buffer.from('abc')), 201));
      process.kill(await system.pidOf('upload'), 'SIGKILL');
      await until(async () => (await root.tus('HEAD', `/files/${id}`)).headers.get('upload-offset') === '3');
      expectStatus(await root.tus('PATCH', `/files/${id}`, { 'upload-offset': '3' }, Buffer.from('def')), 204);
      const made = expectStatus(await root.post(`/api/uploads/${id}/finalize`), 201).json;
      expect((await root.get(`/api/files/${made['id']}/download`)).bytes.toString()).toBe('abcdef');
    });
  });
}
