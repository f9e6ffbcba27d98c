import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { DavServer } from '@stowage/backend-registry/stores/test-dav-server';
import { randomBytes } from 'node:crypto';
import { findCanaries, hidden } from '@stowage/tests/support/canaries';
import { expectStatus, logIn, uploadIdOf, uploadMetadata, until } from '@stowage/tests/support/client';
import type { Client } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { OtlpReceiver } from '@stowage/tests/support/otlp-receiver';
import type { Span } from '@stowage/tests/support/otlp-receiver';
import { startSystem } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';

const content = Buffer.from('the-content-of-the-osprey');
const fileName = 'osprey-figures.txt';
const fileClass = 'ledger';
const password = 'osprey osprey osprey';
/** The traces of the requests that made the upload, sent its bytes, made a file of it and read that. */
const traces = { created: newTrace(), appended: newTrace(), finalized: newTrace(), downloaded: newTrace() };
let receiver: OtlpReceiver;
let system: System;
let client: Client;
let dav: DavServer;
let davId: string;
let localId: string;
let uploadId: string;
let fileId: string;

beforeAll(async () => {
  [receiver, dav] = await Promise.all([OtlpReceiver.start(), DavServer.start()]);
  system = await startSystem(mode(), { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url, OTEL_BSP_SCHEDULE_DELAY: '100' });
  client = await logIn(system.url);
  const config = { url: `http://127.0.0.1:${dav.port}/dav/`, root_path: '/stowage', username: 'osprey', password };
  davId = expectStatus(await client.post('/api/backends', { name: 'away', type: 'webdav', config }), 201).json['id'];
  const backends: { id: string; is_default: boolean }[] = (await client.get('/api/backends')).json['items'];
  localId = backends.find(({ is_default: isDefault }) => isDefault)?.id ?? '';
  const policy = { backends: [localId, davId], replicas: 2 };
  expectStatus(await client.call('PUT', `/api/policies/placement/${fileClass}`, { body: policy }), 200);
  await useIt();
});

afterAll(async () => {
  await system.close();
  await receiver.close();
  dav.stop();
});

function newTrace(): string {
  return randomBytes(16).toString('hex');
}

function within(trace: string): { traceparent: string } {
  return { traceparent: `00-${trace}-${randomBytes(8).toString('hex')}-01` };
}

async function useIt(): Promise<void> {
  const metadata = uploadMetadata({ filename: fileName, file_class: fileClass });
  const headers = { 'upload-length': String(content.length), 'upload-metadata': metadata };
  const made = await client.tus('POST', '/files', { ...within(traces.created), ...headers });
  uploadId = uploadIdOf(expectStatus(made, 201));
  const append = { ...within(traces.appended), 'upload-offset': '0' };
  expectStatus(await client.tus('PATCH', `/files/${uploadId}`, append, content), 204);
  const finalized = await client.post(`/api/uploads/${uploadId}/finalize`, {}, within(traces.finalized));
  fileId = expectStatus(finalized, 201).json['id'];
  expectStatus(await client.get(`/api/files/${fileId}/download`, within(traces.downloaded)), 200);
}

/** A trace once it holds all spans that are wanted, which processes send when they like, and the parents of all but its first. */
function traceWith(trace: () => string | undefined, ...wanted: ((span: Span) => boolean)[]): Promise<Span[]> {
  return until(async () => {
    const spans = receiver.trace(trace() ?? '');
    const ids = new Set(spans.map(({ spanId }) => spanId));
    const orphans = spans.filter(({ parentSpanId }) => parentSpanId !== '' && !ids.has(parentSpanId));
    return wanted.every((one) => spans.some(one)) && orphans.length <= 1 && spans;
  }, 40_000);
}

function named(spans: readonly Span[], name: string): Span | undefined {
  return spans.find((span) => span.name === name);
}

test.each([
  ['the creation of an upload', 'created', 'POST /files', 'store createStaged'],
  ['an append', 'appended', 'PATCH /files/{upload_id}', 'store append'],
  ['a finalization', 'finalized', 'POST /api/uploads/{upload_id}/finalize', 'store seal'],
  ['a download', 'downloaded', 'GET /api/files/{file_id}/download', 'store read'],
] as const)('%s is one trace, from its route to the store and the database', async (_what, key, route, operation) => {
  const spans = await traceWith(
    () => traces[key],
    ({ name }) => name === route,
    ({ name }) => name === operation,
    ({ name }) => name.startsWith('pg'),
  );
  const store = named(spans, operation);
  expect(store?.attributes['stowage.backend.id']).toBe(localId);
  const services = new Set(spans.map(({ service }) => service));
  if (mode() === 'standalone') expect([...services]).toEqual(['stowage-standalone']);
  else expect([...services]).toEqual(expect.arrayContaining(['stowage-gateway', 'stowage-backend-registry']));
});

test('ids are attributes', async () => {
  const spans = await traceWith(
    () => traces.finalized,
    ({ attributes }) => attributes['stowage.upload.id'] === uploadId,
    ({ attributes }) => attributes['stowage.file.id'] === fileId,
    ({ attributes }) => attributes['stowage.blob.id'] !== undefined,
  );
  expect(JSON.stringify(spans)).not.toContain(fileName);
});

test('a request on an upload is linked to the one that made it', async () => {
  for (const trace of [traces.appended, traces.finalized]) {
    const spans = await traceWith(
      () => trace,
      ({ links }) => links.length > 0,
    );
    expect(spans.flatMap(({ links }) => links)).toEqual([traces.created]);
  }
});

test('a job is a trace of its own, linked to its request, down to the call over HTTP of the store', async () => {
  const run = (): Span | undefined =>
    receiver.spans.find(({ name, links }) => name === 'job place_blob' && links.includes(traces.finalized));
  const spans = await traceWith(
    () => run()?.traceId,
    ({ name }) => name === 'job place_blob',
    ({ name, kind }) => name === 'PUT' && kind === 'client',
  );
  const job = named(spans, 'job place_blob');
  expect(job).toMatchObject({ parentSpanId: '', attributes: { 'stowage.job.kind': 'place_blob' } });
  expect(Object.values(traces)).not.toContain(job?.traceId);
  const put = spans.find(({ name, kind }) => name === 'PUT' && kind === 'client');
  expect(put?.attributes).toMatchObject({ 'server.address': '127.0.0.1', 'server.port': dav.port });
  const store = spans.find(({ spanId }) => spanId === put?.parentSpanId);
  expect(store).toMatchObject({ name: 'store write', attributes: { 'stowage.backend.id': davId } });
  const jobs: { id: string; trace_id: string }[] = (await client.get('/api/jobs?kind=place_blob')).json['items'];
  expect(jobs).toContainEqual(
    expect.objectContaining({ id: job?.attributes['stowage.job.id'], trace_id: traces.finalized }),
  );
});

test('what a job run logs, in whichever process, bears its trace', async () => {
  dav.misbehaviour = (_request, response) => {
    response.writeHead(500).end();
    return true;
  };
  expectStatus(await client.post('/api/jobs/enqueue-health-checks', {}), 202);
  const logged = await until(async () => {
    const line = system
      .output()
      .split('\n')
      .find((text) => text.includes('A backend can not be used') && text.includes(davId) && text.includes('trace_id'));
    return line !== undefined && line;
  }, 40_000);
  const { trace_id: traceId } = JSON.parse(logged);
  const run = await until(async () => receiver.trace(traceId).find(({ name }) => name === 'job health_check') ?? null);
  expect(run.parentSpanId).toBe('');
});

test('no span holds a name of a file, a password or content', () => {
  const canaries = Object.entries({ fileName, password, content: content.toString(), token: client.token ?? '' });
  expect(
    findCanaries(
      receiver.bodies.join('\n'),
      canaries.map(([what, word]) => hidden(what, word)),
    ),
  ).toEqual([]);
});
