import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { Client, expectStatus, logIn } from '@stowage/tests/support/client';
import type { Answer, Json } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { Description } from '@stowage/tests/support/openapi';
import { cpuMs } from '@stowage/tests/support/process-cpu';
import { expectProblem } from '@stowage/tests/support/problems';
import { unknownId } from '@stowage/tests/support/routes';
import { adminPassword, startSystem } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';
import { at } from '@stowage/tests/support/tree';

const cheapMs = 50;
const jsonType = { 'content-type': 'application/json' };
let system: System;
let root: Client;
let anonymous: Client;
let pid: number;
let routes: { route: string; method: string; path: string; fields: string[] }[];

beforeAll(async () => {
  system = await startSystem(mode(), {
    STOWAGE_LOGIN_FAILURES_PER_USER: '1000',
    STOWAGE_LOGIN_FAILURES_PER_ADDRESS: '100000',
  });
  root = await logIn(system.url);
  anonymous = new Client(system.url);
  pid = await system.pidOf('gateway');
  const description = await Description.of(root);
  routes = description.operations().flatMap(({ route, method, path, operation }) => {
    const schema: Json | undefined = operation['requestBody']?.content?.['application/json']?.schema;
    if (!schema) return [];
    const concrete = path.replace(/\{\w+\}/g, unknownId);
    return [{ route, method: method.toUpperCase(), path: concrete, fields: Object.keys(schema['properties'] ?? {}) }];
  });
});

afterAll(() => system.close());

/** The CPU time of the server for one call, over some of them. */
async function costOf(call: () => Promise<Answer>, times = 8): Promise<{ ms: number; answer: Answer }> {
  // What is compiled or read for the first time is not what a flood costs.
  let answer = await call();
  const before = await cpuMs(pid);
  for (let i = 0; i < times; i += 1) answer = await call();
  return { ms: ((await cpuMs(pid)) - before) / times, answer };
}

const million = 1_000_000;
const bombs: readonly (readonly [what: string, status: number, body: string])[] = [
  ['100,000 arrays in each other', 400, '['.repeat(100_000) + ']'.repeat(100_000)],
  ['100,000 objects in each other', 400, '{"a":'.repeat(100_000) + '1' + '}'.repeat(100_000)],
  ['a million open arrays', 400, '['.repeat(million)],
  ['a million open objects', 400, '{"a":'.repeat(million / 5)],
  ['a million quotes', 400, '"'.repeat(million)],
  ['a million backslashes in a string', 400, `{"name":"${'\\'.repeat(million)}"}`],
  ['a million escapes', 400, `{"name":"${'\\u0000'.repeat(million / 6)}"}`],
  ['a million half characters', 400, `{"name":"${'\\ud800'.repeat(million / 6)}"}`],
  ['a string of a million characters', 400, `{"name":"${'x'.repeat(million)}"}`],
  ['a string of 10 MB', 413, `{"name":"${'x'.repeat(10 * million)}"}`],
  ['a number of a million digits', 400, `{"name":${'9'.repeat(million)}}`],
  ['a number of a million digits behind the point', 400, `{"name":0.${'1'.repeat(million)}}`],
  ['1e400', 400, '{"name":1e400}'],
  ['-1e400', 400, '{"name":-1e400}'],
  ['1e-400', 400, '{"name":1e-400}'],
  ['an exponent of a million digits', 400, `{"name":1e${'9'.repeat(million)}}`],
  ['100,000 unknown fields', 400, `{${Array.from({ length: 80_000 }, (_, n) => `"f${n}":1`).join(',')}}`],
  ['one field 100,000 times', 400, `{${'"name":1,'.repeat(100_000)}"name":2}`],
  ['an array of a million items', 400, `{"name":[${'1,'.repeat(500_000 - 20)}1]}`],
  ['white space only', 400, ' '.repeat(million)],
  ['white space between all', 400, `{${' '.repeat(million)}"name":}`],
  ['NaN', 400, '{"name":NaN}'],
  ['a comment', 400, '{/* */"name":"x"}'],
  ['two documents', 400, '{"name":"x"}{"name":"y"}'],
];

describe('A body that costs much to read (T48)', () => {
  test.each(bombs)('%s: refused, for less than 50 ms of CPU', async (_what, status, raw) => {
    const call = (): Promise<Answer> => root.call('POST', '/api/directories', { raw, headers: jsonType });
    const { ms, answer } = await costOf(call);
    expectProblem(answer, status, status === 413 ? 'payload_too_large' : 'validation_failed');
    expect(answer.bytes.length).toBeLessThan(20_000);
    expect(ms).toBeLessThan(cheapMs);
  });

  test('is refused on every route, those that need no token too', async () => {
    const some = bombs.filter(([what]) => /100,000|400|half/.test(what));
    for (const { route, method, path } of routes) {
      for (const [what, status, raw] of some) {
        const client = route === 'POST /api/auth/login' ? anonymous : root;
        const answer = await client.call(method, path, { raw, headers: jsonType });
        expect({ route, what, status: answer.status }).toEqual({ route, what, status });
      }
    }
  });

  test('of somebody with no token is not even read', async () => {
    const [, , raw] = at(bombs, 0);
    const { ms, answer } = await costOf(() => anonymous.call('POST', '/api/directories', { raw, headers: jsonType }));
    expectProblem(answer, 401, 'unauthenticated');
    expect(ms).toBeLessThan(cheapMs);
  });
});

describe('Strings that are made for a bad pattern (T50)', () => {
  const long = 50 * 1024;
  const strings = [
    'a'.repeat(long),
    `${'a'.repeat(long)}!`,
    `${'a.'.repeat(long / 2)}!`,
    `${'0-'.repeat(long / 2)}x`,
    `${' '.repeat(long)}x`,
    `${'\t '.repeat(long / 2)}\u0000`,
    `${'(1)'.repeat(long / 3)}`,
    `name ${'(2) '.repeat(long / 4)}(`,
    `${'\u0301'.repeat(long / 2)}`,
    `${'\u{1f600}\u200d'.repeat(long / 7)}`,
    `${'é'.repeat(long / 2)}`,
    `${'a/'.repeat(long / 2)}`,
    `${'%25'.repeat(long / 3)}`,
    `${','.repeat(long)}`,
  ];

  test('in every string of every route cost less than 50 ms of CPU', async () => {
    for (const { route, method, path, fields } of routes) {
      const rest: Json = route.startsWith('POST /api/auth/login') ? { username: 'x', password: 'x' } : {};
      // A login costs what its hash costs: there only what is too long is looked at, which is all of these.
      for (const field of fields) {
        const before = await cpuMs(pid);
        for (const value of strings) {
          const { status } = await root.call(method, path, { body: { ...rest, [field]: value } });
          expect({ route, field, refused: status >= 400 && status < 500 }).toEqual({ route, field, refused: true });
        }
        const ms = ((await cpuMs(pid)) - before) / strings.length;
        expect({ route, field, cheap: ms < cheapMs }).toEqual({ route, field, cheap: true });
      }
    }
  });

  test('in headers and queries, as long as those may be, cost less than 50 ms of CPU', async () => {
    const file = await root.putFile('a.txt', 'text', { type: 'text/plain' });
    const fits = (value: string): string =>
      value
        .replaceAll(/[^ -~\t]/g, '')
        .trim()
        .slice(0, 7_000);
    const download = (headers: Record<string, string>): Promise<Answer> =>
      root.get(`/api/files/${file['id']}/download`, headers);
    const create = (headers: Record<string, string>): Promise<Answer> =>
      root.tus('POST', '/files', { 'upload-length': '1', ...headers });
    const calls: Record<string, (value: string) => Promise<Answer>> = {
      range: (value) => download({ range: `bytes=${value}` }),
      'if-none-match': (value) => download({ 'if-none-match': `"${value}` }),
      'if-match': (value) => download({ 'if-match': value }),
      'if-modified-since': (value) => download({ 'if-modified-since': value }),
      'if-range': (value) => download({ range: 'bytes=0-', 'if-range': value }),
      accept: (value) => download({ accept: value }),
      traceparent: (value) => download({ traceparent: value, tracestate: value }),
      'x-forwarded-for': (value) => download({ 'x-forwarded-for': value, forwarded: value }),
      'x-request-id': (value) => download({ 'x-request-id': value }),
      authorization: (value) => anonymous.get('/api/auth/me', { authorization: `Bearer ${value}` }),
      'content-type': (value) =>
        root.call('POST', '/api/directories', { raw: '{}', headers: { 'content-type': `application/json;${value}` } }),
      'upload-metadata': (value) => create({ 'upload-metadata': value }),
      'upload-metadata value': (value) => create({ 'upload-metadata': `filename ${btoa(value).slice(0, 7_000)}` }),
      'upload-length': (value) => create({ 'upload-length': value }),
      'upload-checksum': (value) => create({ 'upload-checksum': `sha1 ${value}` }),
      'idempotency-key': (value) => root.post('/api/directories', {}, { 'idempotency-key': value }),
      cursor: (value) => root.get(`/api/directories/root/children?cursor=${encodeURIComponent(value).slice(0, 7_000)}`),
      query: (value) => root.get(`/api/users?${encodeURIComponent(value).slice(0, 7_000)}`),
      path: (value) => root.get(`/api/files/${encodeURIComponent(value).slice(0, 7_000)}`),
    };
    for (const [where, call] of Object.entries(calls)) {
      const before = await cpuMs(pid);
      for (const value of strings) {
        const { status } = await call(fits(value));
        expect({ where, broke: status >= 500 }).toEqual({ where, broke: false });
      }
      const ms = ((await cpuMs(pid)) - before) / strings.length;
      expect({ where, cheap: ms < cheapMs }).toEqual({ where, cheap: true });
    }
  });
});

describe('What reaches for the prototype (T49)', () => {
  const reaching = [
    '{"__proto__":{"role":"admin"}}',
    '{"\\u005f\\u005fproto\\u005f\\u005f":{"role":"admin"}}',
    '{"name":{"__proto__":{"polluted":true}}}',
    '{"name":[{"__proto__":{"polluted":true}}]}',
    '{"constructor":{"prototype":{"polluted":true}}}',
    '{"name":{"constructor":{"prototype":{"polluted":true}}}}',
    '{"prototype":{"polluted":true}}',
    '{"__proto__":null,"name":1}',
    '{"toString":1}',
    '{"hasOwnProperty":1}',
    '{"toJSON":1}',
    '{"then":1}',
    '{"name":{"toString":1,"valueOf":2}}',
    '{"__defineGetter__":1}',
    '[{"__proto__":{}}]',
  ];

  test('is refused on every route, and nothing is other than before', async () => {
    const me = (await root.get('/api/auth/me')).json;
    const document = (await root.get('/api/openapi.json')).bytes.toString();
    for (const { route, method, path } of routes) {
      for (const raw of reaching) {
        const client = route === 'POST /api/auth/login' ? anonymous : root;
        const answer = await client.call(method, path, { raw, headers: jsonType });
        expect({ route, raw, status: answer.status }).toEqual({ route, raw, status: 400 });
      }
    }
    for (const query of [
      '__proto__[role]=admin',
      '__proto__.role=admin',
      'constructor[prototype][role]=admin',
      '__proto__=x',
    ])
      expectProblem(await root.get(`/api/users?${query}`), 400, 'validation_failed');
    expect((await root.get('/api/auth/me')).json).toEqual(me);
    expect((await root.get('/api/openapi.json')).bytes.toString()).toBe(document);
    expectStatus(await anonymous.post('/api/auth/login', { username: 'admin', password: adminPassword }), 200);
  });

  test('is no session, no user and no id', async () => {
    for (const word of ['__proto__', 'constructor', 'toString', 'hasOwnProperty']) {
      for (const path of [`/api/users/${word}`, `/api/files/${word}`, `/files/${word}`, `/api/${word}`])
        expect((await root.call('DELETE', path, { headers: { 'tus-resumable': '1.0.0' } })).status).toBe(404);
      expectProblem(await anonymous.get('/api/auth/me', { authorization: `Bearer ${word}` }), 401, 'unauthenticated');
      const login = await anonymous.post('/api/auth/login', { username: word, password: word });
      expectProblem(login, 401, 'invalid_credentials');
    }
  });
});
