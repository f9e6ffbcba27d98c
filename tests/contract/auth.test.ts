import { beforeAll, describe, expect, test } from '@jest/globals';
import { Client, expectStatus, logIn, logInAs } from '@stowage/tests/support/client';
import { admin, baseUrl } from '@stowage/tests/support/contract';
import { expectProblem, pointersOf } from '@stowage/tests/support/problems';
import { sendOdd } from '@stowage/tests/support/odd-http';
import { adminPassword, uniqueName } from '@stowage/tests/support/system';

const anonymous = new Client(baseUrl());
const tokenPattern = /^stw_[A-Za-z0-9_-]{43}$/;
const idPattern = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const timePattern = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
const hourMs = 3_600_000;
let root: Client;

beforeAll(async () => {
  root = await admin();
});

function tokenOf(client: Client): string {
  if (!client.token) throw new Error('not logged in');
  return client.token;
}

describe('Logging in', () => {
  test('gives an opaque token, its life and the user', async () => {
    const before = Date.now();
    const answer = expectStatus(
      await anonymous.post('/api/auth/login', { username: 'admin', password: adminPassword }),
      200,
    );
    expect(answer.json).toEqual({
      access_token: expect.stringMatching(tokenPattern),
      token_type: 'Bearer',
      expires_in: expect.any(Number),
      expires_at: expect.stringMatching(timePattern),
      user: {
        id: expect.stringMatching(idPattern),
        username: 'admin',
        role: 'admin',
        disabled: false,
        created_at: expect.stringMatching(timePattern),
      },
    });
    expect(Date.parse(answer.json['expires_at'])).toBeGreaterThanOrEqual(before + 12 * hourMs - 1_000);
    expect(Date.parse(answer.json['expires_at'])).toBeLessThan(Date.now() + 12 * hourMs + 1_000);
    expect(Math.abs(answer.json['expires_in'] - 12 * 3600)).toBeLessThan(5);
    expect(answer.headers.get('cache-control')).toContain('no-store');
  });

  test('gives another token each time', async () => {
    const tokens = await Promise.all(Array.from({ length: 4 }, async () => tokenOf(await logIn(baseUrl()))));
    expect(new Set(tokens).size).toBe(4);
  });

  test.each([
    ['no user name', { password: 'x' }, '/username'],
    ['no password', { username: 'x' }, '/password'],
    ['a number for a password', { username: 'x', password: 1 }, '/password'],
    ['null for a user name', { username: null, password: 'x' }, '/username'],
    ['an unknown field', { username: 'x', password: 'y', remember_me: true }, '/remember_me'],
  ])('refuses %s with 400 and says where', async (_what, body, pointer) => {
    const problem = expectProblem(await anonymous.post('/api/auth/login', body), 400, 'validation_failed');
    expect(pointersOf(problem)).toContain(pointer);
  });
});

describe('Who am I', () => {
  test('tells the user and the session', async () => {
    const username = uniqueName('viewer');
    const viewer = await logInAs(root, 'viewer', username);
    const { json } = expectStatus(await viewer.get('/api/auth/me'), 200);
    expect(json).toEqual({
      user: {
        id: expect.stringMatching(idPattern),
        username,
        role: 'viewer',
        created_at: expect.stringMatching(timePattern),
      },
      session: {
        id: expect.stringMatching(idPattern),
        created_at: expect.stringMatching(timePattern),
        expires_at: expect.stringMatching(timePattern),
      },
    });
    const left = Date.parse(json['session'].expires_at) - Date.now();
    expect(left).toBeGreaterThan(11.9 * hourMs);
    expect(left).toBeLessThanOrEqual(12 * hourMs);
  });
});

describe('Logging out', () => {
  test('ends this session at once and no other', async () => {
    const username = uniqueName('viewer');
    const one = await logInAs(root, 'viewer', username);
    const other = await logIn(baseUrl(), username, `password of ${username}`);
    const answer = expectStatus(await one.call('POST', '/api/auth/logout'), 204);
    expect(answer.bytes).toHaveLength(0);
    expectProblem(await one.get('/api/auth/me'), 401, 'unauthenticated');
    expectProblem(await one.call('POST', '/api/auth/logout'), 401, 'unauthenticated');
    expectStatus(await other.get('/api/auth/me'), 200);
  });
});

describe('Ways to send a token', () => {
  const me = '/api/auth/me';

  test.each(['Bearer', 'bearer', 'BEARER', 'bEaReR'])('the scheme may be written %s', async (scheme) => {
    expectStatus(await anonymous.get(me, { authorization: `${scheme} ${tokenOf(root)}` }), 200);
  });

  test.each([
    [
      'a query parameter',
      (token: string) => ({ path: `${me}?access_token=${token}&token=${token}&authorization=Bearer%20${token}` }),
    ],
    [
      'a cookie',
      (token: string) => ({
        path: me,
        headers: [['Cookie', `access_token=${token}; token=${token}; session=${token}`]],
      }),
    ],
    [
      'Basic, as a password',
      (token: string) => ({ path: me, headers: [['Authorization', `Basic ${btoa(`admin:${token}`)}`]] }),
    ],
    [
      'Basic, with the admin’s password',
      () => ({ path: me, headers: [['Authorization', `Basic ${btoa(`admin:${adminPassword}`)}`]] }),
    ],
    ['no scheme', (token: string) => ({ path: me, headers: [['Authorization', token]] })],
    ['another scheme', (token: string) => ({ path: me, headers: [['Authorization', `Token ${token}`]] })],
    [
      'two headers',
      (token: string) => ({
        path: me,
        headers: [
          ['Authorization', `Bearer ${token}`],
          ['Authorization', `Bearer ${token}`],
        ],
      }),
    ],
    [
      'two headers, the first wrong',
      (token: string) => ({
        path: me,
        headers: [
          ['Authorization', 'Bearer x'],
          ['Authorization', `Bearer ${token}`],
        ],
      }),
    ],
    [
      'two tokens in one header',
      (token: string) => ({ path: me, headers: [['Authorization', `Bearer ${token}, Bearer ${token}`]] }),
    ],
    [
      'a token with something after it',
      (token: string) => ({ path: me, headers: [['Authorization', `Bearer ${token} x`]] }),
    ],
    [
      'a token with a character more',
      (token: string) => ({ path: me, headers: [['Authorization', `Bearer ${token}A`]] }),
    ],
    [
      'a token without its prefix',
      (token: string) => ({ path: me, headers: [['Authorization', `Bearer ${token.slice(4)}`]] }),
    ],
    ['quotes around it', (token: string) => ({ path: me, headers: [['Authorization', `Bearer "${token}"`]] })],
    [
      'another header',
      (token: string) => ({
        path: me,
        headers: [
          ['X-Access-Token', token],
          ['Proxy-Authorization', `Bearer ${token}`],
          ['X-Authorization', `Bearer ${token}`],
        ],
      }),
    ],
    ['nothing after the scheme', () => ({ path: me, headers: [['Authorization', 'Bearer ']] })],
    ['a token made of SQL', () => ({ path: me, headers: [['Authorization', "Bearer stw_'or'1'='1"]] })],
    ['the hash of a token', () => ({ path: me, headers: [['Authorization', `Bearer stw_${'A'.repeat(43)}`]] })],
  ] as [string, (token: string) => { path: string; headers?: [string, string][] }][])(
    '%s is no way',
    async (_what, make) => {
      const answer = await sendOdd(baseUrl(), make(tokenOf(root)));
      expect(answer.headers.get('www-authenticate')).toMatch(/^Bearer\b/);
      expectProblem(answer, 401, 'unauthenticated');
    },
  );

  test('a token in the query beside one in the header does not count either', async () => {
    const viewer = await logInAs(root, 'viewer', uniqueName('viewer'));
    expectProblem(await viewer.get(`/api/backends?access_token=${tokenOf(root)}`), 403, 'forbidden');
  });

  test('/files takes the same token in the same way', async () => {
    const headers = { 'tus-resumable': '1.0.0', 'upload-length': '1' };
    expectProblem(
      await anonymous.call('POST', `/files?access_token=${tokenOf(root)}`, { headers }),
      401,
      'unauthenticated',
    );
    expectStatus(await root.call('POST', '/files', { headers }), 201);
  });

  test('no answer sets a cookie', async () => {
    const answers = [
      await anonymous.post('/api/auth/login', { username: 'admin', password: adminPassword }),
      await root.get(me),
      await anonymous.get(me),
      await anonymous.get('/api/docs'),
      await anonymous.call('OPTIONS', '/files'),
    ];
    for (const answer of answers) expect(answer.headers.getSetCookie()).toEqual([]);
  });
});
