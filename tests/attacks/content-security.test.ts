import { beforeAll, expect, test } from '@jest/globals';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { Client } from '@stowage/tests/support/client';
import { admin, baseUrl } from '@stowage/tests/support/contract';
import { accessOfRoutes, unknownId } from '@stowage/tests/support/routes';
import { inBatches } from '@stowage/tests/support/tree';
import { uniqueName } from '@stowage/tests/support/system';

let root: Client;

beforeAll(async () => {
  root = await admin();
});

/** A page may load what is its own; whatever else is served may load nothing. */
function isSafe(headers: Headers): boolean {
  const policy = headers.get('content-security-policy') ?? '';
  const directives = policy.split(';').map((directive) => directive.trim());
  return (
    directives.some((directive) => /^default-src '(self|none)'$/.test(directive)) &&
    directives.some((directive) => /^frame-ancestors '(none|self)'$/.test(directive)) &&
    !/unsafe-eval|script-src[^;]*unsafe|https?:|\*/.test(policy)
  );
}

test('every route has a Content-Security-Policy, whoever asks and whatever is answered', async () => {
  const asked = Object.keys(accessOfRoutes).flatMap((route) => {
    const [method = '', path = ''] = route.split(' ');
    return [root, new Client(baseUrl())].map((client) => ({
      method,
      client,
      path: path.replace(/\{\w+\}/, unknownId),
    }));
  });
  // With a body that nothing takes: nothing is to change.
  const open = await inBatches(asked, async ({ method, client, path }) => {
    // These take no body, and would do it.
    if (path === '/api/auth/logout' || path === '/api/files/recycle-bin') return [];
    const isRead = ['GET', 'HEAD', 'OPTIONS'].includes(method);
    const answer = await client.call(method, path, isRead ? {} : { body: 'nonsense' });
    return isSafe(answer.headers) ? [] : [`${method} ${path}: ${answer.headers.get('content-security-policy')}`];
  });
  expect(open.flat()).toEqual([]);
});

test('so has content in each way that it is served, and each file of the page of the description', async () => {
  const { id } = await root.putFile(uniqueName('page.html'), '<script>alert(1)</script>', { type: 'text/html' });
  const page = (await root.get('/api/docs')).bytes.toString();
  const links = [...page.matchAll(/(?:src|href)="([^"]+)"/g)].map((match) => match[1] ?? '');
  expect(links.length).toBeGreaterThan(3);
  const paths = [
    ...['download', 'stream', 'preview'].map((way) => `/api/files/${id}/${way}`),
    ...['/', '/api', '/api/docs', '/api/docs/json', '/api/openapi.json', '/nothing', '/%ff', '/api/docs/static/none'],
    ...links.map((link) => new URL(link, `${baseUrl()}/api/docs`).pathname),
  ];
  const open = await inBatches(paths, async (path) => {
    const { headers } = await root.get(path);
    return isSafe(headers) ? [] : [`${path}: ${headers.get('content-security-policy')}`];
  });
  expect(open.flat()).toEqual([]);
});

test('so has an answer to what is no HTTP', async () => {
  const { hostname, port } = new URL(baseUrl());
  const socket = connect(Number(port), hostname);
  socket.end('nonsense\r\n\r\n');
  const heard = await text(socket);
  expect(heard).toMatch(/^HTTP\/1\.1 400 /);
  expect(heard).toContain("\r\nContent-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n");
});
