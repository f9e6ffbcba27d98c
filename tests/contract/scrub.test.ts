import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { readFile } from 'node:fs/promises';
import { makeBackend } from '@stowage/tests/support/backends';
import { blobFileOf, flipBit } from '@stowage/tests/support/blobs-on-disk';
import { expectStatus, logIn, sha256, until } from '@stowage/tests/support/client';
import type { Client, Json } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { startSystem, uniqueName } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';

let system: System;
let admin: Client;

beforeAll(async () => {
  system = await startSystem(mode(), { STOWAGE_SCRUB_AFTER: '1s', STOWAGE_JOB_INTERVAL: '1s' });
  admin = await logIn(system.url);
});
afterAll(() => system.close());

test('a bit that flips on a disk is found and mended though nobody reads the file', async () => {
  const { items } = expectStatus(await admin.get('/api/backends'), 200).json;
  const backends = [items[0].id, (await makeBackend(admin))['id']];
  const body = { backends, replicas: 2, sync_replicas: 2 };
  expectStatus(await admin.call('PUT', '/api/policies/placement/precious', { body }), 200);
  const content = Buffer.alloc(2_500_000, 'precious');
  const file = await admin.putFile(uniqueName(), content, { fileClass: 'precious' });
  const path = await blobFileOf(system.dataDir, sha256(content));
  await flipBit(path, 2_000_000);
  await until(async () => sha256(await readFile(path)) === sha256(content), 60_000);
  await until(async () => {
    const { json } = await admin.get(`/api/files/${file['id']}`);
    return json['placement'].replicas.every((replica: Json) => replica['state'] === 'available');
  });
});

test('the backends are swept at the next midnight, each once', async () => {
  const { json } = expectStatus(await admin.get('/api/backends'), 200);
  const waiting = expectStatus(await admin.get('/api/jobs?kind=sweep'), 200).json.items;
  const swept = waiting.map((job: Json) => job['params'].backend_id);
  expect(new Set(swept).size).toBe(swept.length);
  // One that was made since has its turn from the next day on.
  expect(swept).toContain(json.items.find((backend: Json) => backend['is_default']).id);
  for (const job of waiting) {
    expect(job['state']).toBe('pending');
    expect(job['run_after']).toMatch(/T00:00:00/);
  }
});
