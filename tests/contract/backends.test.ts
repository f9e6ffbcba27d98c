import { beforeAll, describe, expect, test } from '@jest/globals';
import { expectStatus } from '@stowage/tests/support/client';
import type { Client, Json } from '@stowage/tests/support/client';
import { admin } from '@stowage/tests/support/contract';
import { expectProblem } from '@stowage/tests/support/problems';
import { unknownId } from '@stowage/tests/support/routes';
import { uniqueName } from '@stowage/tests/support/system';

let root: Client;

beforeAll(async () => {
  root = await admin();
});

async function defaultBackend(): Promise<Json> {
  const { json } = expectStatus(await root.get('/api/backends'), 200);
  const found: Json[] = json['items'].filter((backend: Json) => backend['is_default']);
  expect(found).toHaveLength(1);
  return found[0] ?? {};
}

describe('The default local backend', () => {
  test('is there from the first start, enabled, with its folder and no secret', async () => {
    const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    const backend = await defaultBackend();
    expect(backend).toEqual({
      id: expect.stringMatching(/^[0-9a-f]{8}-[0-9a-f]{4}-7/),
      name: expect.stringMatching(/\S/),
      type: 'local_directory',
      state: 'enabled',
      is_default: true,
      config: { root_path: expect.stringMatching(/^\//) },
      secret_fields: [],
      secret_refs: {},
      health: backend['health'],
      usage: { replicas: expect.any(Number), bytes: expect.any(Number) },
      version: expect.any(Number),
      created_at: time,
      updated_at: time,
    });
    expect(Object.keys(backend['health']).sort()).toEqual(['checked_at', 'detail', 'latency_ms', 'status']);
    expect(['unknown', 'healthy']).toContain(backend['health'].status);
    expect(String(backend['health'].latency_ms)).toMatch(/^(null|\d+(\.\d)?)$/);
  });

  test('reads the same alone, with its version as ETag', async () => {
    const { id } = await defaultBackend();
    const answer = expectStatus(await root.get(`/api/backends/${id}`), 200);
    expect(answer.json).toMatchObject({ id, type: 'local_directory', is_default: true, secret_fields: [] });
    expect(answer.headers.get('etag')).toBe(`"${answer.json['version']}"`);
  });

  test('counts what a new file adds', async () => {
    const before = (await defaultBackend())['usage'];
    const file = await root.putFile(uniqueName(), Buffer.alloc(12_345, 7));
    const after = (await defaultBackend())['usage'];
    expect(after.replicas).toBeGreaterThanOrEqual(before.replicas + 1);
    expect(after.bytes).toBeGreaterThanOrEqual(before.bytes + 12_345);
    const { placement } = expectStatus(await root.get(`/api/files/${file['id']}`), 200).json;
    const { id, name } = await defaultBackend();
    expect(placement).toEqual({
      state: 'satisfied',
      replicas: [{ backend_id: id, backend_name: name, state: 'available', verified_at: expect.any(String) }],
    });
  });
});

test('a backend that is not there is 404', async () => {
  expectProblem(await root.get(`/api/backends/${unknownId}`), 404, 'not_found');
  expectProblem(await root.get('/api/backends/local'), 404, 'not_found');
});
