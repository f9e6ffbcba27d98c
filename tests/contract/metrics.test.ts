import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { expectStatus, logIn, until } from '@stowage/tests/support/client';
import type { Client } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { freePort } from '@stowage/tests/support/free-ports';
import { documentedMetrics, metricOf } from '@stowage/tests/support/metrics-page';
import { scrape } from '@stowage/tests/support/scrape';
import type { Sample } from '@stowage/tests/support/scrape';
import { startSystem } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';
import { completeUpload, contentOf, finalize, makeUpload } from '@stowage/tests/support/uploads';

const content = Buffer.from('what is counted');
let system: System;
let client: Client;
let fileId: string;

beforeAll(async () => {
  const port = mode() === 'standalone' ? { STOWAGE_MANAGEMENT_PORT: String(await freePort()) } : {};
  system = await startSystem(mode(), { STOWAGE_METRICS: 'true', ...port });
  client = await logIn(system.url);
  await useIt();
});

afterAll(async () => {
  await system.close();
});

/** A file that came and went, an upload that was given up, a request to nowhere, and a job. */
async function useIt(): Promise<void> {
  const { items } = expectStatus(await client.get('/api/backends'), 200).json;
  const policy = { backends: [items[0].id], replicas: 1 };
  expectStatus(await client.call('PUT', '/api/policies/placement/ledger', { body: policy }), 200);
  const upload = await completeUpload(client, content, { filename: 'counted.txt', file_class: 'ledger' });
  fileId = expectStatus(await finalize(client, upload), 201).json['id'];
  expect(await contentOf(client, fileId)).toEqual(content);
  const other = await makeUpload(client, { length: 5, metadata: { filename: 'given-up.txt' } });
  expectStatus(await client.tus('DELETE', other.path), 204);
  expectStatus(await client.get('/nowhere'), 404);
  expectStatus(await client.post('/api/jobs/enqueue-health-checks', {}), 202);
  expectStatus(await client.post('/api/jobs/run-pending', { wait_seconds: 30 }), 200);
}

/** The samples of a metric with these labels, once there are any. */
async function samplesOf(name: string, labels: Record<string, string> = {}): Promise<Sample[]> {
  return until(async () => {
    const found = (await scrape(system)).filter(
      (sample) => sample.name === name && Object.entries(labels).every(([key, value]) => sample.labels[key] === value),
    );
    return found.length > 0 && found;
  });
}

async function valueOf(name: string, labels: Record<string, string> = {}): Promise<number> {
  const [sample] = await samplesOf(name, labels);
  return sample?.value ?? Number.NaN;
}

/** Of the labels of a sample, without the bound of a histogram's bucket. */
function namesOf(labels: Sample['labels']): string[] {
  return Object.keys(labels)
    .filter((label) => label !== 'le')
    .sort();
}

describe('metrics without a collector', () => {
  test('are those of deploy/metrics.md, all of them and no others, with their labels', async () => {
    const documented = await documentedMetrics();
    const wanted = Object.fromEntries(documented.map(({ name, labels }) => [name, labels]));
    // Those that come from the database are late where it is slow.
    const exposed = await until(async () => {
      const found = Object.fromEntries(
        (await scrape(system)).map(({ name, labels }) => [metricOf(name, documented), namesOf(labels)]),
      );
      return Object.keys(wanted).every((name) => found[name] !== undefined) && found;
    });
    expect(exposed).toEqual(wanted);
  });

  test('count requests by the template of their route', async () => {
    const name = 'stowage_http_request_duration_seconds_count';
    expect(await valueOf(name, { route: '/api/files/{file_id}/download', method: 'GET', status: '2xx' })).toBe(1);
    expect(await valueOf(name, { route: 'none', status: '4xx' })).toBe(1);
    const texts = JSON.stringify(await scrape(system));
    for (const word of [fileId, 'nowhere', 'counted.txt']) expect(texts).not.toContain(word);
  });

  test('count uploads and bytes', async () => {
    const events = { started: 2, finalized: 1, terminated: 1, expired: 0 };
    for (const [event, count] of Object.entries(events))
      expect({ event, count: await valueOf('stowage_uploads_total', { event }) }).toEqual({ event, count });
    for (const direction of ['in', 'out'])
      expect(await valueOf('stowage_content_bytes_total', { direction })).toBe(content.length);
  });

  test('tell of jobs, backends and placement', async () => {
    const runs = { kind: 'health_check', outcome: 'succeeded' };
    expect(await valueOf('stowage_job_run_duration_seconds_count', runs)).toBeGreaterThan(0);
    expect(await valueOf('stowage_jobs', { kind: 'place_blob', state: 'failed' })).toBe(0);
    const [backend] = await samplesOf('stowage_backend_up', { type: 'local_directory' });
    expect(backend).toMatchObject({ value: 1, labels: { name: 'local' } });
    const id = backend?.labels['backend'] ?? '';
    expect(await valueOf('stowage_backend_operation_duration_seconds_count', { backend: id, operation: 'seal' })).toBe(
      1,
    );
    expect(await valueOf('stowage_placement_blobs', { file_class: 'ledger', state: 'satisfied' })).toBe(1);
    expect(await valueOf('stowage_placement_blobs', { file_class: 'ledger', state: 'lost' })).toBe(0);
  });

  test('name the version of every process', async () => {
    const components = (await samplesOf('stowage_build_info')).map(({ labels }) => labels['component']);
    const six = ['backend-registry', 'catalog', 'export', 'gateway', 'placement', 'upload'];
    expect(components.sort()).toEqual(mode() === 'standalone' ? ['standalone'] : six);
  });
});
