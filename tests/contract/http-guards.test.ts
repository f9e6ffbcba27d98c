import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { Client, expectStatus, logIn, uploadMetadata, until } from '@stowage/tests/support/client';
import type { Answer } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { converse, exchange, firstAnswer, sendOdd } from '@stowage/tests/support/odd-http';
import type { Exchange } from '@stowage/tests/support/odd-http';
import { expectProblem } from '@stowage/tests/support/problems';
import { unknownId } from '@stowage/tests/support/routes';
import { adminPassword, startSystem, uniqueName } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';

const publicUrl = 'https://files.example.com';
const app = 'https://app.example.com';
const secondApp = 'http://localhost:5173';
let system: System;
let root: Client;

beforeAll(async () => {
  system = await startSystem(mode(), {
    STOWAGE_PUBLIC_URL: publicUrl,
    STOWAGE_CORS_ORIGINS: `${app}, ${secondApp}`,
    STOWAGE_HEADERS_TIMEOUT: '500ms',
    STOWAGE_JSON_TIMEOUT: '500ms',
    STOWAGE_IDLE_TIMEOUT: '1s',
  });
  root = await logIn(system.url);
});

afterAll(() => system.close());

function head(method: string, path: string, lines: string[] = []): string {
  const all = [`${method} ${path} HTTP/1.1`, 'Host: stowage.test', `Authorization: Bearer ${root.token}`, ...lines];
  return `${all.join('\r\n')}\r\n\r\n`;
}

describe('Origins that may call from a browser', () => {
  test.each([app, secondApp])('%s reads answers, problems as well', async (origin) => {
    for (const answer of [
      await root.get('/api/auth/me', { origin }),
      await new Client(system.url).get('/api/auth/me', { origin }),
      await root.get('/api/nothing', { origin }),
      await root.tus('POST', '/files', { origin, 'upload-length': '1' }),
    ]) {
      expect(answer.headers.get('access-control-allow-origin')).toBe(origin);
      expect(answer.headers.get('vary')).toMatch(/\borigin\b/i);
      expect(answer.headers.get('access-control-allow-credentials')).toBeNull();
    }
  });

  test.each([
    'null',
    'https://app.example.com.evil.test',
    'https://evilapp.example.com',
    'https://evil.test/https://app.example.com',
    'http://app.example.com',
    'https://app.example.com:8443',
    'https://APP.example.com',
    'https://app.example.com/',
    '*',
    `${app}, ${secondApp}`,
    'http://localhost',
    'file://',
  ])('%s reads nothing', async (origin) => {
    for (const path of ['/api/auth/me', '/api/system/health', '/files']) {
      const { headers } = await root.get(path, { origin });
      expect(headers.get('access-control-allow-origin')).toBeNull();
    }
    const preflight = await root.call('OPTIONS', '/files', {
      headers: { origin, 'access-control-request-method': 'POST' },
    });
    expect(preflight.headers.get('access-control-allow-origin')).toBeNull();
  });

  test('see the headers that a tus client needs', async () => {
    const { headers } = await root.tus('POST', '/files', { origin: app, 'upload-length': '1' });
    const exposed = (headers.get('access-control-expose-headers') ?? '')
      .split(/\s*,\s*/)
      .map((name) => name.toLowerCase());
    expect(exposed).toEqual(
      expect.arrayContaining([
        'location',
        'upload-offset',
        'upload-length',
        'upload-metadata',
        'upload-expires',
        'upload-defer-length',
        'tus-resumable',
        'tus-version',
        'tus-extension',
        'tus-max-size',
        'etag',
        'content-range',
        'content-disposition',
        'retry-after',
        'x-request-id',
      ]),
    );
  });

  test.each(['POST', 'PATCH', 'HEAD', 'DELETE'])(
    'may %s uploads, as the preflight without a token says',
    async (method) => {
      const asked =
        'authorization, tus-resumable, upload-offset, upload-length, upload-metadata, upload-checksum, content-type';
      const path = method === 'POST' ? '/files' : '/files/0193fa2c-7a3e-7cc1-9f0e-0d5f1a2b3c4d';
      const answer = await new Client(system.url).call('OPTIONS', path, {
        headers: { origin: app, 'access-control-request-method': method, 'access-control-request-headers': asked },
      });
      expect([200, 204]).toContain(answer.status);
      expect(answer.headers.get('access-control-allow-origin')).toBe(app);
      expect((answer.headers.get('access-control-allow-methods') ?? '').split(/\s*,\s*/)).toContain(method);
      const allowed = (answer.headers.get('access-control-allow-headers') ?? '').toLowerCase().split(/\s*,\s*/);
      expect(allowed).toEqual(expect.arrayContaining(asked.split(', ')));
    },
  );

  test.each([
    ['PATCH', '/api/users/0193fa2c-7a3e-7cc1-9f0e-0d5f1a2b3c4d'],
    ['PUT', '/api/system/mode'],
    ['DELETE', '/api/files/recycle-bin'],
  ])('may %s %s', async (method, path) => {
    const headers = {
      origin: secondApp,
      'access-control-request-method': method,
      'access-control-request-headers': 'authorization, content-type, if-match, idempotency-key',
    };
    const answer = await new Client(system.url).call('OPTIONS', path, { headers });
    expect([200, 204]).toContain(answer.status);
    expect(answer.headers.get('access-control-allow-methods')).toContain(method);
  });

  test('leave a plain OPTIONS of tus what it was', async () => {
    for (const headers of [{}, { origin: app }, { origin: 'https://evil.test' }] as Record<string, string>[]) {
      const answer = await new Client(system.url).call('OPTIONS', '/files', { headers });
      expectStatus(answer, 204);
      expect(answer.headers.get('tus-version')).toBe('1.0.0');
      expect(answer.headers.get('tus-resumable')).toBe('1.0.0');
    }
  });
});

describe('The public address', () => {
  test('is what upload addresses begin with, whatever Host says', async () => {
    const spoofs: [string, string][][] = [
      [],
      [['Host', 'evil.test']],
      [
        ['X-Forwarded-Host', 'evil.test'],
        ['X-Forwarded-Proto', 'gopher'],
      ],
      [['Forwarded', 'host=evil.test;proto=http']],
      [
        ['X-Original-URL', '/evil'],
        ['X-Rewrite-URL', '/evil'],
        ['X-Forwarded-Prefix', '/evil'],
      ],
    ];
    for (const spoof of spoofs) {
      const headers: [string, string][] = [
        ['Authorization', `Bearer ${root.token}`],
        ['Tus-Resumable', '1.0.0'],
        ['Upload-Length', '1'],
        ...spoof,
      ];
      const answer = expectStatus(await sendOdd(system.url, { method: 'POST', path: '/files', headers }), 201);
      expect(answer.headers.get('location')).toMatch(/^https:\/\/files\.example\.com\/files\/[0-9a-f-]{36}$/);
      expect(JSON.stringify([...answer.headers])).not.toContain('evil');
    }
  });

  test('over TLS tells browsers to keep to TLS', async () => {
    expect((await root.get('/api/auth/me')).headers.get('strict-transport-security')).toMatch(/^max-age=\d{7,}/);
  });
});

describe('Time', () => {
  const [limitMs, slack] = [500, 2_500];

  /** All that is slow goes on side by side; each test below looks at what came of one. */
  async function beSlow() {
    const [still, steady] = [await makeUpload(10), await makeUpload(20)];
    const slowBody = ['Content-Type: application/json', 'Content-Length: 500', 'X-Request-Id: slow'];
    const content = ['Tus-Resumable: 1.0.0', 'Upload-Offset: 0', 'Content-Type: application/offset+octet-stream'];
    const [headers, dripped, body, loginBody, drippedBody, stillContent, steadyContent, waiting] = await Promise.all([
      exchange(system.url, 'POST /api/directories HTTP/1.1\r\nHost: stowage.test\r\nX-Slow: ', 8_000),
      drip(`GET /api/system/health HTTP/1.1\r\nHost: stowage.test\r\nX-Slow: `, 'x'.repeat(200)),
      exchange(system.url, `${head('POST', '/api/directories', slowBody)}{"na`, 8_000),
      exchange(system.url, `${head('POST', '/api/auth/login', slowBody)}{"na`, 8_000),
      drip(head('POST', '/api/directories', slowBody), ' '.repeat(200)),
      exchange(system.url, `${head('PATCH', still, [...content, 'Content-Length: 10'])}abcd`, 10_000),
      drip(head('PATCH', steady, [...content, 'Content-Length: 20', 'Connection: close']), 'x'.repeat(20)),
      waitForJobs(),
    ]);
    return { headers, dripped, bodies: [body, loginBody], drippedBody, still, stillContent, steadyContent, waiting };
  }

  let seen: Awaited<ReturnType<typeof beSlow>>;

  beforeAll(async () => {
    seen = await beSlow();
  });

  async function makeUpload(length: number): Promise<string> {
    const metadata = uploadMetadata({ filename: 'slow' });
    const answer = await root.tus('POST', '/files', { 'upload-length': String(length), 'upload-metadata': metadata });
    return (expectStatus(answer, 201).headers.get('location') ?? '').slice(publicUrl.length);
  }

  /** Sends the second part byte by byte, 75 ms apart, until it is through or the server has closed. */
  function drip(start: string, rest: string): Promise<Exchange> {
    return converse(
      system.url,
      async (socket) => {
        socket.write(start);
        for (const byte of rest) {
          if (socket.destroyed) return;
          socket.write(byte);
          await delay(75);
        }
      },
      10_000,
    );
  }

  async function waitForJobs(): Promise<{ answer: Answer; ms: number }> {
    // A kind that nobody works stays due for as long as the client cares to wait.
    const database = new pg.Client({ connectionString: system.databaseUrl });
    await database.connect();
    await database.query(`insert into jobs.jobs (id, kind) values ('${unknownId}', 'nobody_works_this')`);
    await database.end();
    const start = performance.now();
    const answer = await root.post('/api/jobs/run-pending', { kinds: ['nobody_works_this'], wait_seconds: 2 });
    return { answer, ms: performance.now() - start };
  }

  test('headers that do not come within their limit end with 408 and a closed connection', () => {
    expect(seen.headers).toMatchObject({ closed: true, statuses: [408] });
    expectProblem(firstAnswer(seen.headers), 408, 'request_timeout');
    expect(seen.headers.ms).toBeLessThan(limitMs + slack);
  });

  test('headers that come byte by byte do as well', () => {
    expect(seen.dripped).toMatchObject({ closed: true, statuses: [408] });
    expect(seen.dripped.ms).toBeLessThan(limitMs + slack);
  });

  test('a JSON body that does not come ends with 408, where no token is needed as well', () => {
    for (const body of seen.bodies) {
      expect(body).toMatchObject({ closed: true, statuses: [408] });
      expectProblem(firstAnswer(body), 408, 'request_timeout');
      expect(firstAnswer(body).headers.get('x-request-id')).toBe('slow');
      expect(body.ms).toBeLessThan(limitMs + slack);
    }
  });

  test('a JSON body that comes byte by byte has the same limit as a whole', () => {
    expect(seen.drippedBody).toMatchObject({ closed: true, statuses: [408] });
    expect(seen.drippedBody.ms).toBeLessThan(limitMs + slack);
  });

  test('content that stands still is cut off, and what arrived stays', async () => {
    expect(seen.stillContent.closed).toBe(true);
    expect(seen.stillContent.statuses.filter((status) => status < 400)).toEqual([]);
    await until(async () => (await root.tus('HEAD', seen.still)).headers.get('upload-offset') === '4');
  });

  test('content that keeps coming has no limit as a whole', () => {
    expect(seen.steadyContent.statuses).toEqual([204]);
  });

  test('waiting for jobs longer than that is the client’s wish and goes on', () => {
    const { answer, ms } = seen.waiting;
    expect(expectStatus(answer, 200).json).toEqual({ selected: 1, succeeded: 0, failed: 0, running: 1 });
    expect(ms).toBeGreaterThan(1_900);
  });
});

test('a connection that serves many requests gathers nothing', async () => {
  for (let i = 0; i < 30; i += 1) expectStatus(await root.get('/api/auth/me'), 200);
  expect(system.output()).not.toMatch(/Warning/);
});

test('no answer of it sets a cookie, and the password is in none', async () => {
  const body = { username: 'admin', password: adminPassword };
  const answer = await new Client(system.url).call('POST', '/api/auth/login', {
    body,
    headers: { origin: app, 'x-request-id': uniqueName() },
  });
  expect(answer.headers.getSetCookie()).toEqual([]);
  expect(answer.bytes.toString()).not.toContain(adminPassword);
});
