import { beforeAll, describe, expect, test } from '@jest/globals';
import type { Answer, Client, Json } from '@stowage/tests/support/client';
import { admin } from '@stowage/tests/support/contract';
import { Description } from '@stowage/tests/support/openapi';
import { expectProblem } from '@stowage/tests/support/problems';
import { unknownId } from '@stowage/tests/support/routes';
import { uniqueName } from '@stowage/tests/support/system';

const texts = [
  '',
  'a\u0000b',
  '\ud800',
  '\u202e',
  'x'.repeat(50 * 1024),
  '('.repeat(50 * 1024),
  '%00%2e%2e%2f',
  '../../../etc/passwd',
  "'; drop schema catalog cascade; --",
  '${jndi:ldap://x}',
  '1e400',
  '-1',
  '99999999999999999999',
];
const values: unknown[] = [
  ...texts,
  -1,
  1e308,
  1.5,
  null,
  true,
  [],
  {},
  [[]],
  ['a\u0000b'],
  { toString: 'x', valueOf: 'y' },
];
const slowMs = 5_000;
let root: Client;
let description: Description;
let home: string;

beforeAll(async () => {
  root = await admin();
  description = await Description.of(root);
  home = (await root.makeDirectory(uniqueName('nasty')))['id'];
});

/** A request body that is right but for what a test does to it. */
function plausible(schema: Json): Json {
  const known: Json = {
    name: uniqueName(),
    username: uniqueName('user'),
    password: 'a good long password',
    role: 'viewer',
  };
  const needed: string[] = schema['required'] ?? [];
  const place = 'parent_id' in (schema['properties'] ?? {}) ? { parent_id: home } : {};
  return { ...place, ...Object.fromEntries(needed.map((field) => [field, known[field] ?? unknownId])) };
}

/** Any answer of ours will do, but for one: that something broke. */
async function expectHandled(what: string, call: () => Promise<Answer>): Promise<void> {
  const start = performance.now();
  const answer = await call();
  expect({ what, broke: answer.status >= 500, slow: performance.now() - start > slowMs }).toEqual({
    what,
    broke: false,
    slow: false,
  });
  if (answer.status >= 400) expectProblem(answer, answer.status, answer.json['code']);
}

function* bodies(): Generator<{ route: string; method: string; path: string; schema: Json }> {
  for (const { route, method, path, operation } of description.operations()) {
    const schema: Json | undefined = operation['requestBody']?.content?.['application/json']?.schema;
    if (!schema) continue;
    yield { route, method: method.toUpperCase(), path: path.replace(/\{\w+\}/g, unknownId), schema };
  }
}

describe('Every route with a body', () => {
  test('handles every nasty value in every field', async () => {
    for (const { route, method, path, schema } of bodies()) {
      // Failed logins count; sessions.test.ts tries such values on a system of its own.
      if (route === 'POST /api/auth/login') continue;
      for (const field of Object.keys(schema['properties'] ?? {})) {
        const send = (value: unknown): Promise<void> =>
          expectHandled(`${route} ${field} ${JSON.stringify(value).slice(0, 40)}`, () =>
            root.call(method, path, { body: { ...plausible(schema), [field]: value } }),
          );
        await Promise.all(values.map(send));
      }
    }
  });

  test('refuses fields that reach for the prototype', async () => {
    for (const { route, method, path, schema } of bodies()) {
      for (const field of ['__proto__', 'constructor', 'prototype']) {
        const right = JSON.stringify(plausible(schema)).slice(1, -1);
        const raw = `{${right}${right === '' ? '' : ','}"${field}":{"role":"admin"}}`;
        const answer = await root.call(method, path, { raw, headers: { 'content-type': 'application/json' } });
        expect({ route, field, status: answer.status }).toEqual({ route, field, status: 400 });
        expectProblem(answer, 400, 'validation_failed');
      }
    }
  });

  test('refuses a body that is not an object', async () => {
    for (const { route, method, path } of bodies()) {
      for (const raw of ['null', '[]', '"x"', '1', 'true']) {
        const answer = await root.call(method, path, { raw, headers: { 'content-type': 'application/json' } });
        expect({ route, raw, status: answer.status }).toEqual({ route, raw, status: 400 });
      }
    }
  });
});

describe('Every route with parameters in its query', () => {
  test('handles every nasty value in each of them', async () => {
    for (const { route, method, path, operation } of description.operations()) {
      // It is refused as GET is, without a body to tell why.
      if (method === 'head') continue;
      const concrete = path.replace('{directory_id}', 'root').replace(/\{\w+\}/g, unknownId);
      for (const parameter of (operation['parameters'] ?? []) as Json[]) {
        if (parameter['in'] !== 'query') continue;
        for (const text of texts.filter((candidate) => candidate.length < 1_000 && candidate.isWellFormed())) {
          const query = `${parameter['name']}=${encodeURIComponent(text)}`;
          await expectHandled(`${route} ${query}`, () => root.call(method.toUpperCase(), `${concrete}?${query}`));
        }
      }
    }
  });
});

describe('Every header that we read', () => {
  type Send = (headers: Record<string, string>) => Promise<Answer>;
  let file: string;

  beforeAll(async () => {
    file = (await root.putFile(uniqueName(), 'x', { type: 'text/plain', directory: home }))['id'];
  });

  const download: Send = (headers) => root.get(`/api/files/${file}/download`, headers);
  const rename: Send = (headers) => root.post(`/api/files/${file}/rename`, { name: uniqueName() }, headers);
  const create: Send = (headers) => root.tus('POST', '/files', { 'upload-length': '1', ...headers });
  const append: Send = (headers) =>
    root.tus('PATCH', `/files/${unknownId}`, { 'upload-offset': '0', ...headers }, Buffer.from('x'));
  const override: Send = (headers) => root.tus('POST', `/files/${unknownId}`, headers);

  const nasty = ['', ' ', ',', '"', 'W/', '*', '-', '=', 'bytes=', 'bytes=-', 'bytes=9-1', 'é', 'x'.repeat(5_000)];
  const numbers = ['%00', '0', '-1', '1e9', '99999999999999999999', "'"];

  test.each<[string, Send]>([
    ['if-match', rename],
    ['if-none-match', download],
    ['if-range', (headers) => download({ range: 'bytes=0-0', ...headers })],
    ['range', download],
    ['idempotency-key', rename],
    ['x-request-id', download],
    ['traceparent', download],
    ['accept', download],
    ['origin', download],
    ['x-http-method-override', override],
    ['upload-metadata', create],
    ['upload-length', create],
    ['upload-defer-length', create],
    ['upload-checksum', append],
    ['upload-offset', append],
    ['tus-resumable', append],
  ])('handles nasty values in %s', async (header, send) => {
    const all = [...nasty, ...numbers];
    await Promise.all(all.map((value) => expectHandled(`${header}: ${value}`, () => send({ [header]: value }))));
  });
});
