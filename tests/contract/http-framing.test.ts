import { beforeAll, describe, expect, test } from '@jest/globals';
import { Client, expectStatus } from '@stowage/tests/support/client';
import { admin, baseUrl } from '@stowage/tests/support/contract';
import { exchange, firstAnswer, sendOdd } from '@stowage/tests/support/odd-http';
import { expectProblem } from '@stowage/tests/support/problems';
import { uniqueName } from '@stowage/tests/support/system';

const smuggled = 'GET /api/system/health HTTP/1.1\r\nHost: stowage.test\r\n\r\n';
let root: Client;
let token: string;

beforeAll(async () => {
  root = await admin();
  token = root.token ?? '';
});

/** A request that would make a directory, but for the lines that are odd in it. */
function post(lines: string[], body: string, path = '/api/directories'): string {
  const all = [
    `POST ${path} HTTP/1.1`,
    'Host: stowage.test',
    `Authorization: Bearer ${token}`,
    'Content-Type: application/json',
    ...lines,
  ];
  return `${all.join('\r\n')}\r\n\r\n${body}`;
}

const body = '{"name":""}';
const length = `Content-Length: ${body.length}`;
const chunked = 'Transfer-Encoding: chunked';
const chunks = `b\r\n${body}\r\n0\r\n\r\n`;

describe('A request whose end two servers could see at two places is 400, and the connection is closed', () => {
  test.each([
    ['a length and chunks', () => post([length, chunked], chunks)],
    ['chunks and a length', () => post([chunked, length], chunks)],
    ['chunks and a length of 0', () => post([chunked, 'Content-Length: 0'], chunks)],
    ['two lengths', () => post([length, 'Content-Length: 3'], body)],
    ['the same length twice', () => post([length, length], body)],
    ['a list of lengths', () => post([`Content-Length: ${body.length}, ${body.length}`], body)],
    ['a length with a sign', () => post([`Content-Length: +${body.length}`], body)],
    ['a negative length', () => post(['Content-Length: -1'], body)],
    ['a length in hex', () => post(['Content-Length: 0xb'], body)],
    ['a length with a space in it', () => post(['Content-Length: 1 1'], body)],
    ['an empty length', () => post(['Content-Length: '], body)],
    ['a length beyond 64 bits', () => post(['Content-Length: 99999999999999999999999'], body)],
    ['a space before the colon', () => post([`Content-Length : ${body.length}`], body)],
    ['an unknown coding', () => post(['Transfer-Encoding: xchunked'], chunks)],
    ['chunks, but not last', () => post(['Transfer-Encoding: chunked, gzip'], chunks)],
    ['identity', () => post(['Transfer-Encoding: identity'], body)],
    ['a folded header', () => post(['X-Folded: a', ' b', length], body)],
    ['a folded length', () => post(['Content-Length:', ` ${body.length}`], body)],
    ['a folded coding', () => post(['Transfer-Encoding:', ' chunked', length], chunks)],
    ['a bare LF after a header', () => post([length], body).replace('Host: stowage.test\r\n', 'Host: stowage.test\n')],
    ['a bare LF after the request line', () => post([length], body).replace('HTTP/1.1\r\n', 'HTTP/1.1\n')],
    ['bare LFs only', () => post([length], body).replaceAll('\r\n', '\n')],
    ['a bare CR in a header', () => post(['X-Odd: a\rContent-Length: 0', length], body)],
    ['a NUL in a header', () => post(['X-Odd: a\u0000b', length], body)],
    ['a NUL in a name', () => post(['X-O\u0000dd: a', length], body)],
    ['a space in a name', () => post(['X Odd: a', length], body)],
    ['a name of nothing', () => post([': a', length], body)],
    ['a line without a colon', () => post(['nonsense', length], body)],
    ['a chunk size that is none', () => post([chunked], `x\r\n${body}\r\n0\r\n\r\n`)],
    ['a chunk size with 0x', () => post([chunked], `0xb\r\n${body}\r\n0\r\n\r\n`)],
    ['a negative chunk size', () => post([chunked], `-b\r\n${body}\r\n0\r\n\r\n`)],
    ['a chunk size beyond 64 bits', () => post([chunked], `fffffffffffffffff\r\n${body}\r\n0\r\n\r\n`)],
    ['a chunk size with a bare LF', () => post([chunked], `b\n${body}\r\n0\r\n\r\n`)],
    ['a chunk longer than it says', () => post([chunked], `a\r\n${body}\r\n0\r\n\r\n`)],
    [
      'chunks and a length on /files',
      () => post(['Tus-Resumable: 1.0.0', 'Upload-Length: 11', length, chunked], chunks, '/files'),
    ],
    [
      'two lengths on /files',
      () => post(['Tus-Resumable: 1.0.0', 'Upload-Length: 11', length, 'Content-Length: 3'], body, '/files'),
    ],
    ['no Host', () => post([length], body).replace('Host: stowage.test\r\n', '')],
    ['two Hosts', () => post(['Host: evil.test', length], body)],
    ['another version of HTTP', () => post([length], body).replace('HTTP/1.1', 'HTTP/3.9')],
    ['no version of HTTP', () => `GET /api/system/health\r\n\r\n`],
    ['a method that is none', () => 'G@T /api/system/health HTTP/1.1\r\nHost: stowage.test\r\n\r\n'],
    ['no HTTP at all', () => '\u0016\u0003\u0001\u0002\u0000\u0001\u0000\u0001\u00fc\u0003\u0003nonsense'],
  ])('%s', async (_what, make) => {
    const seen = await exchange(baseUrl(), Buffer.from(make() + smuggled, 'latin1'), 3_000);
    expect({ statuses: seen.statuses, closed: seen.closed }).toEqual({ statuses: [400], closed: true });
    expectProblem(firstAnswer(seen), 400, 'validation_failed');
    expect(firstAnswer(seen).headers.get('connection')).toBe('close');
  });

  test('headers of more than 32 KiB are 431', async () => {
    const seen = await exchange(baseUrl(), post([`X-Long: ${'x'.repeat(40_000)}`, length], body), 3_000);
    expect(seen.statuses).toEqual([431]);
    expectProblem(firstAnswer(seen), 431, 'headers_too_large');
  });
});

describe('What is odd but clear', () => {
  test('two whole requests on one connection get two answers', async () => {
    const seen = await exchange(
      baseUrl(),
      smuggled + smuggled.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n'),
      3_000,
    );
    expect(seen.statuses).toEqual([200, 200]);
  });

  test('a body refused before it was read does not become the next request', async () => {
    const hidden = smuggled;
    const request = `POST /api/directories HTTP/1.1\r\nHost: stowage.test\r\nContent-Type: application/json\r\nContent-Length: ${hidden.length}\r\n\r\n${hidden}`;
    const seen = await exchange(baseUrl(), request, 1_000);
    expect(seen.statuses).toEqual([401]);
  });

  test('a GET with a body is answered once', async () => {
    const seen = await exchange(
      baseUrl(),
      `GET /api/system/health HTTP/1.1\r\nHost: stowage.test\r\nConnection: close\r\nContent-Length: ${smuggled.length}\r\n\r\n${smuggled}`,
      3_000,
    );
    expect(seen.statuses).toHaveLength(1);
  });

  test('chunks with extensions and trailers are read', async () => {
    const name = uniqueName();
    const json = JSON.stringify({ name });
    const text = post(
      [chunked, 'Connection: close'],
      `${json.length.toString(16)};x=y\r\n${json}\r\n0\r\nX-Trailer: a\r\n\r\n`,
    );
    expect((await exchange(baseUrl(), text, 5_000)).statuses).toEqual([201]);
  });

  test('a trailer is no header', async () => {
    const text = `POST /api/auth/logout HTTP/1.1\r\nHost: stowage.test\r\nContent-Type: application/json\r\nConnection: close\r\n${chunked}\r\nTrailer: Authorization\r\n\r\n0\r\nAuthorization: Bearer ${token}\r\n\r\n`;
    expect((await exchange(baseUrl(), text, 5_000)).statuses).toEqual([401]);
    expectStatus(await root.get('/api/auth/me'), 200);
  });

  test.each(['TRACE', 'CONNECT', 'DEBUG', 'PURGE'])('%s shows nothing', async (method) => {
    const target = method === 'CONNECT' ? 'example.com:443' : '/api/auth/me';
    const seen = await exchange(
      baseUrl(),
      `${method} ${target} HTTP/1.1\r\nHost: stowage.test\r\nConnection: close\r\nX-Secret: echo-me\r\n\r\n`,
      3_000,
    );
    expect(seen.statuses.every((status) => status >= 400)).toBe(true);
    expect(seen.closed).toBe(true);
    expect(seen.text).not.toContain('echo-me');
  });
});

describe('Headers of answers', () => {
  const anonymous = new Client(baseUrl());

  test('keep browsers from doing anything with them', async () => {
    const answers = [
      await root.get('/api/auth/me'),
      await anonymous.get('/api/auth/me'),
      await root.get('/api/nothing'),
      await anonymous.get('/api/system/health'),
      await root.post('/api/directories', { nonsense: 1 }),
      await root.tus('POST', '/files', { 'upload-length': '1' }),
      await root.tus('POST', '/files', {}),
      await anonymous.get('/'),
    ];
    for (const { headers } of answers) {
      expect(Object.fromEntries(headers)).toMatchObject({
        'cache-control': 'private, no-store',
        'x-content-type-options': 'nosniff',
        'x-frame-options': 'DENY',
        'referrer-policy': 'no-referrer',
        'content-security-policy': expect.stringContaining("frame-ancestors 'none'"),
      });
      expect(headers.getSetCookie()).toEqual([]);
    }
  });

  test('keep content private, and let it be asked for again by its ETag', async () => {
    const { id } = await root.putFile(uniqueName(), 'hello', { type: 'text/plain' });
    for (const route of ['download', 'stream', 'preview']) {
      const { headers } = expectStatus(await root.get(`/api/files/${id}/${route}`), 200);
      expect(headers.get('cache-control')).toMatch(/\bprivate\b/);
      expect(headers.get('cache-control')).not.toMatch(/\bpublic\b/);
      expect(headers.get('etag')).toMatch(/^"[^"]+"$/);
      expect(headers.get('x-content-type-options')).toBe('nosniff');
      expect(headers.getSetCookie()).toEqual([]);
    }
  });

  test('keep the offset of an upload out of caches', async () => {
    const made = expectStatus(await root.tus('POST', '/files', { 'upload-length': '1' }), 201);
    const head = expectStatus(await root.tus('HEAD', made.headers.get('location') ?? ''), 200);
    expect(head.headers.get('cache-control')).toContain('no-store');
  });

  test('allow no other origin where none was set', async () => {
    for (const origin of ['https://app.example.com', 'null', baseUrl(), 'http://localhost:8080']) {
      const answers = [
        await root.get('/api/auth/me', { origin }),
        await root.tus('POST', '/files', { origin, 'upload-length': '1' }),
        await anonymous.call('OPTIONS', '/files', { headers: { origin, 'access-control-request-method': 'POST' } }),
        await anonymous.call('OPTIONS', '/api/directories', {
          headers: { origin, 'access-control-request-method': 'POST' },
        }),
      ];
      for (const { headers } of answers)
        expect([...headers.keys()].filter((name) => name.startsWith('access-control-'))).toEqual([]);
    }
  });

  test('name no host that the client made up', async () => {
    const spoof: [string, string][] = [
      ['Authorization', `Bearer ${token}`],
      ['Host', 'evil.test'],
      ['X-Forwarded-Host', 'evil.test'],
      ['X-Forwarded-Proto', 'https'],
      ['Forwarded', 'host=evil.test'],
      ['X-Forwarded-For', '198.51.100.1'],
    ];
    const upload = await sendOdd(baseUrl(), {
      method: 'POST',
      path: '/files',
      headers: [...spoof, ['Tus-Resumable', '1.0.0'], ['Upload-Length', '1']],
    });
    expect(expectStatus(upload, 201).headers.get('location')).toMatch(/^\/files\/[0-9a-f-]{36}$/);
    const directory = await sendOdd(baseUrl(), {
      method: 'POST',
      path: '/api/directories',
      headers: [...spoof, ['Content-Type', 'application/json']],
      body: JSON.stringify({ name: uniqueName() }),
    });
    expect(expectStatus(directory, 201).headers.get('location')).toMatch(/^\/api\/directories\/[0-9a-f-]{36}$/);
    for (const path of ['/api/docs', '/api/openapi.json', '/api/nothing']) {
      const { headers, bytes } = await sendOdd(baseUrl(), { path, headers: spoof });
      expect(`${JSON.stringify([...headers])}${bytes.toString()}`).not.toContain('evil.test');
    }
  });
});
