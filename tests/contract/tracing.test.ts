import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { findCanaries, hidden } from '@stowage/tests/support/canaries';
import { Client, expectStatus, logIn, uploadIdOf, uploadMetadata, until } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { OtlpReceiver } from '@stowage/tests/support/otlp-receiver';
import type { Span } from '@stowage/tests/support/otlp-receiver';
import { expectProblem } from '@stowage/tests/support/problems';
import { adminPassword, startSystem } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';

/** Words that stand nowhere but in what clients send. */
const secrets = {
  file: 'quarterly-figures-kestrel.txt',
  renamed: 'kestrel-renamed.txt',
  directory: 'Projekt-Eisvogel',
  user: 'whistleblower',
  password: 'heron heron heron heron',
  content: 'the-content-of-the-heron',
};
let receiver: OtlpReceiver;
let system: System;
let root: Client;
let user: Client;
const traceId = randomBytes(16).toString('hex');
const parentId = randomBytes(8).toString('hex');

beforeAll(async () => {
  receiver = await OtlpReceiver.start();
  system = await startSystem(mode(), { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url, OTEL_BSP_SCHEDULE_DELAY: '100' });
  root = await logIn(system.url);
  expectStatus(
    await root.post('/api/users', { username: secrets.user, password: secrets.password, role: 'editor' }),
    201,
  );
  user = await logIn(system.url, secrets.user, secrets.password);
  await useEverything();
});

afterAll(async () => {
  await system.close();
});

/** How many requests useEverything sends in the trace. */
const requests = 15;
const traced = { traceparent: `00-${traceId}-${parentId}-01` };

/** An upload, its finalization and a download in one trace of the client's, and several refusals in it. */
async function useEverything(): Promise<void> {
  const directory = expectStatus(await user.post('/api/directories', { name: secrets.directory }, traced), 201).json[
    'id'
  ];
  expectProblem(await user.post('/api/directories', { name: secrets.directory }, traced), 409, 'name_conflict');
  const length = String(secrets.content.length);
  const metadata = uploadMetadata({ filename: secrets.file, directory_id: directory });
  const id = uploadIdOf(
    expectStatus(
      await user.tus('POST', '/files', { ...traced, 'upload-length': length, 'upload-metadata': metadata }),
      201,
    ),
  );
  expectStatus(
    await user.tus('PATCH', `/files/${id}`, { ...traced, 'upload-offset': '0' }, Buffer.from(secrets.content)),
    204,
  );
  const file = expectStatus(await user.post(`/api/uploads/${id}/finalize`, {}, traced), 201).json['id'];
  expectStatus(await user.get(`/api/files/${file}/download`, traced), 200);
  expectStatus(await user.post(`/api/files/${file}/rename`, { name: secrets.renamed }, traced), 200);
  expectStatus(await user.get(`/api/directories/${directory}/children?limit=1`, traced), 200);
  expectProblem(
    await user.post(`/api/files/${file}/rename`, { name: `${secrets.renamed}/` }, traced),
    400,
    'validation_failed',
  );
  expectProblem(
    await root.post('/api/users', { username: secrets.user, password: secrets.password, role: 'editor' }, traced),
    409,
    'name_conflict',
  );
  const login = await new Client(system.url).post(
    '/api/auth/login',
    { username: secrets.user, password: `${secrets.password}!` },
    traced,
  );
  expectProblem(login, 401, 'invalid_credentials');
  for (const name of ['a', 'b'])
    expectStatus(await user.post('/api/directories', { name: `${secrets.directory}-${name}` }, traced), 201);
  const page = expectStatus(await user.get('/api/directories/root/children?limit=1', traced), 200).json;
  expectStatus(await user.get(`/api/directories/root/children?limit=1&cursor=${page['next_cursor']}`, traced), 200);
}

/**
 * The trace, once it is whole: each request's own span is there, no span's parent is missing, and nor is the other end of a
 * hop, whose process sends its spans when it likes.
 */
function whole(): Promise<Span[]> {
  return until(async () => {
    const spans = receiver.trace(traceId);
    const ids = new Set([parentId, ...spans.map(({ spanId }) => spanId)]);
    const entries = spans.filter((span) => span.parentSpanId === parentId);
    const served = new Set(spans.filter(({ kind }) => kind === 'server').map((span) => span.parentSpanId));
    const isWhole =
      entries.length >= requests &&
      spans.every((span) => ids.has(span.parentSpanId)) &&
      spans.every((span) => !isHop(span) || served.has(span.spanId));
    return isWhole ? spans : null;
  });
}

/** Whether it is a call to another process of ours; the others that a service is a client of are databases here. */
function isHop({ kind, attributes }: Span): boolean {
  return kind === 'client' && attributes['db.system'] === undefined && attributes['db.system.name'] === undefined;
}

function rpc(spans: Span[], kind: Span['kind'], service: string): string[] {
  return spans
    .filter((span) => span.kind === kind && span.service === service && /stowage\.\w+\.v1\./.test(JSON.stringify(span)))
    .map((span) => /stowage\.(\w+)\.v1\.\w+/.exec(JSON.stringify(span))?.[1] ?? '');
}

describe('A trace', () => {
  test('goes on from the client’s traceparent, one server span a request', async () => {
    const spans = await whole();
    const gateway = mode() === 'services' ? 'stowage-gateway' : 'stowage-standalone';
    const entries = spans.filter((span) => span.service === gateway && span.parentSpanId === parentId);
    expect(entries.map((span) => span.attributes['http.route'])).toEqual(
      expect.arrayContaining([
        '/api/directories',
        '/files',
        '/files/{upload_id}',
        '/api/uploads/{upload_id}/finalize',
        '/api/files/{file_id}/download',
      ]),
    );
    for (const entry of entries) expect(entry.attributes['http.request.method']).toMatch(/^[A-Z]+$/);
  });

  test('shows the queries of the database', async () => {
    const spans = await whole();
    const queries = spans.filter(
      (span) => span.attributes['db.system'] === 'postgresql' || span.attributes['db.system.name'] === 'postgresql',
    );
    expect(queries.length).toBeGreaterThan(5);
  });

  test('has both ends of every hop between services', async () => {
    const spans = await whole();
    if (mode() === 'standalone') {
      expect(new Set(spans.map((span) => span.service))).toEqual(new Set(['stowage-standalone']));
      expect(spans.filter((span) => /grpc/i.test(span.name))).toEqual([]);
      return;
    }
    expect(new Set(rpc(spans, 'client', 'stowage-gateway'))).toEqual(new Set(['catalog', 'upload']));
    expect(new Set(rpc(spans, 'client', 'stowage-upload'))).toEqual(
      new Set(['catalog', 'placement', 'backend_registry']),
    );
    for (const service of ['catalog', 'upload', 'placement', 'backend-registry']) {
      const served = rpc(spans, 'server', `stowage-${service}`);
      expect({ service, served: new Set(served) }).toEqual({ service, served: new Set([service.replace('-', '_')]) });
    }
    const byteHops = spans
      .filter((span) => span.kind === 'server' && span.name.startsWith('bytes/'))
      .map(({ service, name }) => `${service} ${name}`);
    expect(new Set(byteHops)).toEqual(
      new Set([
        'stowage-upload bytes/append-upload',
        'stowage-backend-registry bytes/append-staged',
        'stowage-backend-registry bytes/read-blob',
      ]),
    );
    for (const served of spans.filter((span) => span.kind === 'server' && span.parentSpanId !== parentId)) {
      const caller = spans.find((span) => span.spanId === served.parentSpanId);
      expect(caller).toMatchObject({ kind: 'client' });
      expect(caller?.service).not.toBe(served.service);
    }
  });

  test('holds no name, token, password or content', async () => {
    await whole();
    const all = receiver.bodies.join('\n');
    const canaries = Object.entries({ ...secrets, admin: adminPassword }).map(([what, word]) => hidden(what, word));
    for (const client of [root, user]) canaries.push(hidden('token', client.token ?? ''));
    expect(findCanaries(all, [...canaries, hidden('hash', 'argon2id')])).toEqual([]);
  });
});

describe('A collector that is down', () => {
  beforeAll(() => receiver.close());

  test('is in nobody’s way', async () => {
    const start = performance.now();
    for (let i = 0; i < 10; i += 1) expectStatus(await user.get('/api/directories/root/children'), 200);
    expect(performance.now() - start).toBeLessThan(3_000);
  });

  test('does not keep the service from stopping', async () => {
    // The launcher of six stops the gateway, then upload, then the rest.
    const stages = mode() === 'services' ? 3 : 1;
    const start = performance.now();
    expect(await system.stop()).toBe(0);
    expect(performance.now() - start).toBeLessThan(stages * 5_000);
  });
});
