import { beforeAll, describe, expect, test } from '@jest/globals';
import { hostname } from 'node:os';
import { Client } from '@stowage/tests/support/client';
import type { Answer } from '@stowage/tests/support/client';
import { admin, baseUrl } from '@stowage/tests/support/contract';
import { sendOdd } from '@stowage/tests/support/odd-http';
import { expectNothingInternal } from '@stowage/tests/support/problems';
import { inBatches } from '@stowage/tests/support/tree';

/** Where servers are known to tell of themselves, or to give away what they are made of. */
const paths: readonly string[] = [
  '/metrics',
  '/api/metrics',
  '/debug/pprof/',
  '/debug/vars',
  '/debug/requests',
  '/actuator',
  '/actuator/env',
  '/actuator/heapdump',
  '/server-status',
  '/server-info',
  '/phpinfo.php',
  '/info.php',
  '/status',
  '/env',
  '/config',
  '/config.json',
  '/package.json',
  '/package-lock.json',
  '/.env',
  '/.git/config',
  '/.git/HEAD',
  '/.npmrc',
  '/.well-known/security.txt',
  '/node_modules/fastify/package.json',
  '/services/gateway/src/main.ts',
  '/proc/self/environ',
  '/etc/passwd',
  '/..%2f..%2f..%2fetc%2fpasswd',
  '/%2e%2e/%2e%2e/%2e%2e/etc/passwd',
  '/api/..%2f..%2fetc/passwd',
  '/api/docs/..%2f..%2f..%2fpackage.json',
  '/api/docs/static/..%2f..%2f..%2fpackage.json',
  '/api/docs/static/%2e%2e/%2e%2e/package.json',
  '/api/docs/static/..%5c..%5cpackage.json',
  '/api/docs/static/%00',
  '/api/docs/static/index.html%00.png',
  '/api/docs/static/../../../../../../etc/passwd',
  '/api/docs/yaml/../../x',
  '/api/debug',
  '/api/admin',
  '/api/internal',
  '/api/env',
  '/api/config',
  '/api/settings',
  '/api/logs',
  '/api/system',
  '/api/system/debug',
  '/api/system/env',
  '/api/v1/users',
  '/graphql',
  '/console',
  '/admin',
  '/__inspect',
  '/json/list',
  '/api/auth',
  '/api/auth/register',
  '/api/auth/reset',
  '/api/auth/token',
  '/swagger.json',
  '/openapi.json',
  '/dav/',
  '/s3/',
  '/minio/health/live',
];
let root: Client;

beforeAll(async () => {
  root = await admin();
});

function ask(path: string, token: string | null): Promise<Answer> {
  const headers: [string, string][] = token ? [['Authorization', `Bearer ${token}`]] : [];
  // As it is: fetch would resolve the dots.
  return sendOdd(baseUrl(), { path, headers });
}

describe('Paths at which other servers told too much (T61)', () => {
  test.each([
    ['nobody', () => null],
    ['an admin', () => root.token],
  ])('tell %s nothing', async (_who, token) => {
    const open = await inBatches(paths, async (path) => {
      const answer = await ask(path, token());
      const text = `${JSON.stringify([...answer.headers])}${answer.bytes.toString()}`;
      expectNothingInternal(text);
      const refused = answer.status >= 400 && answer.status < 500 && answer.json['code'] !== undefined;
      return refused && !text.includes(hostname()) ? [] : [`${path}: ${answer.status} ${text.slice(0, 300)}`];
    });
    expect(open.flat()).toEqual([]);
  });

  test('what is public tells no version of what it is made with, and no host', async () => {
    const anonymous = new Client(baseUrl());
    for (const path of [
      '/api/system/health',
      '/api/system/ready',
      '/api/openapi.json',
      '/api/docs',
      '/api/nothing',
      '/',
    ]) {
      const { headers, bytes } = await anonymous.get(path);
      for (const name of ['server', 'x-powered-by', 'via', 'x-runtime', 'x-aspnet-version'])
        expect({ path, name, value: headers.get(name) }).toEqual({ path, name, value: null });
      expect(bytes.toString()).not.toContain(hostname());
      if (path !== '/api/docs') expect(bytes.toString()).not.toMatch(/fastify|node\.js|postgres(ql)? \d/i);
    }
  });
});
