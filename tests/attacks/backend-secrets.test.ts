import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { databaseText, findCanaries, hidden, secret } from '@stowage/tests/support/canaries';
import type { Canary } from '@stowage/tests/support/canaries';
import { Client, expectStatus, logIn, until } from '@stowage/tests/support/client';
import type { Answer, CallOptions, Json } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { EchoServer, echoes } from '@stowage/tests/support/echo-server';
import { OtlpReceiver } from '@stowage/tests/support/otlp-receiver';
import { freePort } from '@stowage/tests/support/free-ports';
import { startSystem, uniqueName } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';

const word = (what: string): string => `canary${what}${randomBytes(12).toString('hex')}`;
const words = {
  accessKey: word('key'),
  secretKey: word('secret'),
  sessionToken: word('session'),
  password: word('password'),
  changed: word('changed'),
  inAddress: word('address'),
  inQuery: word('query'),
  misplaced: word('misplaced'),
};
const canaries: Canary[] = [
  ...Object.entries(words).map(([what, value]) => secret(what, value)),
  hidden('an Authorization header of WebDAV', Buffer.from(`ada:${words.password}`).toString('base64')),
  hidden('a signature of S3', 'Signature='),
  hidden('a credential of S3', 'Credential='),
];

const answers: string[] = [];

/** Remembers what it was answered. */
class Recorder extends Client {
  override async call(method: string, path: string, options: CallOptions = {}): Promise<Answer> {
    const answer = await super.call(method, path, options);
    answers.push(`${method} ${path}: ${JSON.stringify([...answer.headers])} ${answer.bytes.toString('latin1')}`);
    return answer;
  }
}

const traceId = randomBytes(16).toString('hex');
let server: EchoServer;
let receiver: OtlpReceiver;
let system: System;
let root: Recorder;
let metrics: string;

beforeAll(async () => {
  server = await EchoServer.start();
  receiver = await OtlpReceiver.start();
  const management = await freePort();
  metrics = `http://127.0.0.1:${management}/metrics`;
  system = await startSystem(mode(), {
    STOWAGE_LOG_LEVEL: 'trace',
    STOWAGE_MANAGEMENT_PORT: String(management),
    OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
    OTEL_BSP_SCHEDULE_DELAY: '100',
  });
  root = new Recorder(system.url, (await logIn(system.url)).token ?? '');
  for (const type of ['s3', 'webdav'] as const) await useBackend(type);
  await askWrongly();
  for (const path of [
    '/api/backends',
    '/api/jobs?limit=1000',
    '/api/policies/placement',
    '/api/policies/placement/preview',
  ])
    expectStatus(await root.get(path), 200);
}, 300_000);

afterAll(async () => {
  await system.close();
  await receiver.close();
  await server.close();
});

function configOf(type: 's3' | 'webdav'): Json {
  return type === 's3'
    ? {
        ...{ endpoint: server.url, region: 'us-east-1', bucket: uniqueName('bucket'), force_path_style: true },
        ...{ access_key_id: words.accessKey, secret_access_key: words.secretKey, session_token: words.sessionToken },
      }
    : { url: server.url, root_path: `/${uniqueName()}`, username: 'ada', password: words.password };
}

/** Whatever a backend is used for, while its server answers in every wrong way. */
async function useBackend(type: 's3' | 'webdav'): Promise<void> {
  const body = { name: uniqueName(type), type, config: configOf(type) };
  const key = { 'idempotency-key': uniqueName('key') };
  const { id } = expectStatus(await root.post('/api/backends', body, key), 201).json;
  expectStatus(await root.post('/api/backends', body, key), 201);
  const fileClass = uniqueName('class');
  const { items } = expectStatus(await root.get('/api/backends'), 200).json;
  const home = items.find((backend: Json) => backend['is_default']);
  const policy = { backends: [home['id'], id], replicas: 2 };
  expectStatus(await root.call('PUT', `/api/policies/placement/${fileClass}`, { body: policy }), 200);
  for (const echo of echoes) {
    server.echo = echo;
    expectStatus(await root.post(`/api/backends/${id}/check`), 200);
    const name = uniqueName();
    expectStatus(await root.call('PATCH', `/api/backends/${id}`, { body: { name } }), 200);
    expectStatus(await root.get(`/api/backends/${id}`), 200);
    await root.putFile(uniqueName(), 'copied in vain', { fileClass });
    for (const action of ['disable', 'enable']) expectStatus(await root.post(`/api/backends/${id}/${action}`), 200);
  }
  const secrets = type === 's3' ? { secret_access_key: words.changed } : { password: words.changed };
  expectStatus(await root.call('PATCH', `/api/backends/${id}`, { body: { config: secrets }, headers: key }), 200);
  const { jobs } = expectStatus(await root.post('/api/jobs/enqueue-health-checks'), 202).json;
  await until(async () => {
    const states = await Promise.all(jobs.map((job: Json) => root.get(`/api/jobs/${job['id']}`)));
    return states.every(({ json }) => ['succeeded', 'failed'].includes(String(json['state'])));
  }, 60_000);
  expectStatus(await root.post(`/api/backends/${id}/forget-replicas`, { confirm: true, accept_loss: true }), 409);
  expectStatus(await root.delete(`/api/backends/${id}`), 409);
}

/** Secrets where they do not belong. */
async function askWrongly(): Promise<void> {
  const { inAddress, inQuery, misplaced } = words;
  const at = configOf('s3');
  const dav = configOf('webdav');
  const wrong: [string, Json][] = [
    ['s3', { ...at, endpoint: `http://ada:${inAddress}@127.0.0.1:9` }],
    ['s3', { ...at, endpoint: `http://127.0.0.1:9/?X-Amz-Signature=${inQuery}` }],
    ['s3', { ...at, password: misplaced }],
    ['s3', { ...at, bucket: `UPPER_${misplaced}` }],
    ['s3', { ...at, region: `${misplaced}!` }],
    ['s3', { ...at, secret_access_key: [misplaced] }],
    ['s3', { ...at, secret_access_key: `${misplaced}\n` }],
    ['webdav', { ...dav, url: `http://ada:${inAddress}@127.0.0.1:9` }],
    ['webdav', { ...dav, url: `http://127.0.0.1:9/#${inQuery}` }],
    ['webdav', { ...dav, username: `ada:${misplaced}` }],
    ['webdav', { ...dav, root_path: `../${misplaced}` }],
    ['webdav', { ...dav, secret_access_key: misplaced }],
    ['local_directory', { root_path: `/etc/${misplaced}` }],
    ['ftp', { password: misplaced }],
  ];
  for (const [type, config] of wrong)
    expectStatus(await root.post('/api/backends', { name: uniqueName(), type, config }), 400);
  expectStatus(await root.post('/api/backends', { name: uniqueName(), type: 's3', config: misplaced }), 400);
  expectStatus(
    await root.call('POST', '/api/backends', {
      raw: `{"password":"${misplaced}`,
      headers: { 'content-type': 'application/json' },
    }),
    400,
  );
}

function found(text: string): string[] {
  return findCanaries(text, canaries);
}

describe('No secret of a backend, nor what is made of it, stands in', () => {
  test('this server got them all, or what proves them', () => {
    const heard = server.heard.join('\n');
    for (const value of [words.accessKey, words.sessionToken, words.password]) expect(heard).toContain(value);
    expect(heard).toContain('Signature=');
  });

  test('any answer (T38)', () => {
    expect(answers.length).toBeGreaterThan(100);
    expect(answers.flatMap(found)).toEqual([]);
  });

  test('any log line, whatever the level (T40)', () => {
    expect(system.output()).toContain('A backend can not be used');
    expect(found(system.output())).toEqual([]);
  });

  test('any trace or metric (T40)', async () => {
    expectStatus(
      await root.get('/api/backends', { traceparent: `00-${traceId}-${randomBytes(8).toString('hex')}-01` }),
      200,
    );
    await until(async () => receiver.trace(traceId).length > 0);
    expect(receiver.bodies.join('').length).toBeGreaterThan(1_000);
    expect(found(receiver.bodies.join('\n'))).toEqual([]);
    const page = await (await fetch(metrics)).text();
    expect(page.length).toBeGreaterThan(100);
    expect(found(page)).toEqual([]);
  });

  test('any row: health, jobs, events and kept answers too (T37)', async () => {
    const texts = await databaseText(system.databaseUrl);
    expect(texts.get('jobs.jobs')).toContain('health_check');
    expect(texts.get('jobs.idempotency_keys')?.length).toBeGreaterThan(100);
    expect([...texts].flatMap(([table, text]) => found(text).map((place) => `${table}: ${place}`))).toEqual([]);
  });

  test('any file of the data folder', async () => {
    const entries = await readdir(system.dataDir, { recursive: true, withFileTypes: true });
    for (const entry of entries.filter((one) => one.isFile())) {
      const file = join(entry.parentPath, entry.name);
      expect({ file, found: found(await readFile(file, 'latin1')) }).toEqual({ file, found: [] });
    }
  });
});
