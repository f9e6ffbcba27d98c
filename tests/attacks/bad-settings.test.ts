import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { chmod, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startPlainly } from '@stowage/tests/support/plain-start';

/** Must never be printed. */
const password = 'hunter2-hunter2-hunter2';
let folder: string;
let empty: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'stowage-settings-'));
  await chmod(folder, 0o755);
  empty = join(folder, 'empty');
  await writeFile(empty, '');
});

afterAll(() => rm(folder, { recursive: true, force: true }));

/** Values that would switch a limit off, open what must be shut, or break every request. */
const bad: Record<string, readonly string[]> = {
  ADMIN_PASSWORD: ['short', 'x'.repeat(257), ' '],
  ADMIN_USERNAME: ['two words', 'line\nbreak', '<b>', 'x'.repeat(65)],
  DATABASE_URL: ['mysql://root@localhost/x', 'postgres', `http://u:${password}@localhost/x`],
  PUBLIC_URL: [
    'javascript:alert(1)',
    `https://u:${password}@example.com`,
    '//example.com',
    'https://example.com/a?b',
    `https://:${password}@example.com`,
  ],
  CORS_ORIGINS: ['*', 'null', 'https://*.example.com', 'https://a.example.com/path', 'file:///'],
  TRUSTED_PROXIES: ['*', '0.0.0.0/33', 'localhost', '10.0.0.0/8/8', '10.0.0.0/', '::/129', '10.0.0.0/8 10.1.0.0/16'],
  LOGIN_FAILURES_PER_USER: ['0', '-1', '1e9', '99999999', 'unlimited'],
  LOGIN_FAILURES_PER_ADDRESS: ['0', '99999999'],
  LOGIN_WINDOW: ['0s', '0ms', '-1s', '99999999d', '15'],
  SESSION_TTL: ['0s', '99999999d', 'forever'],
  SESSION_MAX: ['0s', '99999999d'],
  // 0 is no limit to Node, and what a timer can't hold is no time at all.
  HEADERS_TIMEOUT: ['0s', '25d'],
  JSON_TIMEOUT: ['0s', '25d'],
  IDLE_TIMEOUT: ['0s', '25d'],
  JOB_INTERVAL: ['0s', '25d'],
  JOB_LEASE: ['0s', '25d'],
  UPLOAD_LEASE: ['0s', '25d'],
  UPLOAD_EXPIRY: ['0s', '99999999d'],
  JSON_BODY_LIMIT: ['0', '-1', '1PiB'],
  MAX_UPLOAD_BYTES: ['-1', '9999999TiB', '0x10'],
  REQUESTS_PER_MINUTE: ['-1', 'NaN'],
  DATABASE_CONNECTIONS: ['0', '1000000'],
  LOG_LEVEL: ['everything'],
  PORT: ['-1', '65536', 'http'],
};

/** The n-th bad value of each: a start tells of all mistakes at once, so that each counts though it is not alone. */
const starts = Array.from({ length: 7 }, (_, n) =>
  Object.entries(bad).flatMap(([name, values]) => {
    const value = values[n];
    return value === undefined ? [] : [{ variable: `STOWAGE_${name}`, value }];
  }),
);

test('every bad setting ends the start with 1 and is named, and nothing is made (T59)', async () => {
  expect(starts.flat()).toHaveLength(Object.values(bad).flat().length);
  for (const settings of starts) {
    const environment = Object.fromEntries(settings.map(({ variable, value }) => [variable, value]));
    const started = startPlainly('standalone', { STOWAGE_DATA_DIR: join(folder, 'data'), ...environment });
    started.ready.then(() => started.signal('SIGTERM')).catch(() => undefined);
    expect(await started.exited).toBe(1);
    const output = started.output();
    expect(settings.filter(({ variable }) => !output.includes(`- ${variable} `))).toEqual([]);
    expect(output).not.toMatch(/\n\s+at /);
    expect(output).not.toContain(password);
  }
  expect(await readdir(folder)).toEqual(['empty']);
});

test('a secret from a file is as strictly looked at, and a second one is not passed over', async () => {
  const cases: [Record<string, string>, RegExp][] = [
    [{ STOWAGE_ADMIN_PASSWORD_FILE: empty }, /STOWAGE_ADMIN_PASSWORD must have 12/],
    [{ STOWAGE_ADMIN_PASSWORD_FILE: join(folder, 'nothing') }, /STOWAGE_ADMIN_PASSWORD_FILE|can't be read/],
    [{ STOWAGE_ADMIN_PASSWORD_FILE: empty, STOWAGE_ADMIN_PASSWORD: password }, /STOWAGE_ADMIN_PASSWORD is set twice/],
  ];
  for (const [settings, message] of cases) {
    const started = startPlainly('standalone', {
      STOWAGE_DATA_DIR: join(folder, 'data'),
      STOWAGE_PORT: '0',
      ...settings,
    });
    expect(await started.exited).toBe(1);
    expect(started.output()).toMatch(message);
    expect(started.output()).not.toContain(password);
  }
});
