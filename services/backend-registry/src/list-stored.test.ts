import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { newId } from '@stowage/common/ids';
import { LocalConnections } from '@stowage/common/rpc/connections';
import { endpoint } from '@stowage/common/rpc/contract';
import type { Client } from '@stowage/common/rpc/contract';
import { createLogger } from '@stowage/common/runtime/logger';
import { StoredService } from '@stowage/proto/stowage/backend_registry/v1/stored';
import { listStored } from './list-stored.ts';
import { markerName } from './stores/identity-marker.ts';
import { blobKey } from './stores/keys.ts';
import { refuses } from './stores/test-store.ts';
import { context, startTestRegistry } from './test-registry.ts';
import type { TestRegistry } from './test-registry.ts';

let registry: TestRegistry;
let stored: Client<typeof StoredService>;
let backendId: string;

beforeAll(async () => {
  registry = await startTestRegistry();
});
afterAll(() => registry.close());
beforeEach(async () => {
  await registry.reset();
  const { stores, setUp } = registry.replica();
  await setUp();
  const connections = new LocalConnections(createLogger('test', 'silent'));
  const calls = { listStoredBlobs: (request: Parameters<typeof listStored>[1]) => listStored(stores, request) };
  connections.add('backend-registry', [endpoint(StoredService, calls)], []);
  stored = connections.client(StoredService);
  const [row] = await registry.rows();
  backendId = row?.id ?? '';
});

async function plant(blobId: string, size: number): Promise<void> {
  const file = path.join(registry.root, blobKey(blobId));
  await mkdir(path.dirname(file), { recursive: true });
  await writeFile(file, Buffer.alloc(size));
}

function page(cursor = '', limit = 4) {
  return stored.listStoredBlobs({ backendId, cursor, limit }, context());
}

test('a backend is listed in the order of keys, page by page', async () => {
  const ids = Array.from({ length: 10 }, () => newId());
  for (const [size, id] of ids.entries()) await plant(id, size);
  const found: string[] = [];
  for (let cursor: string | undefined = ''; cursor !== undefined;) {
    const { items, nextCursor }: Awaited<ReturnType<typeof page>> = await page(cursor);
    for (const { blobId, size, modifiedAtMs } of items) {
      expect(Number(size)).toBe(ids.indexOf(blobId));
      expect(Math.abs(Number(modifiedAtMs) - Date.now())).toBeLessThan(60_000);
      found.push(blobKey(blobId));
    }
    cursor = nextCursor;
  }
  expect(found).toEqual(ids.map(blobKey).sort());
});

test('a place that lost its marker is no empty backend: not before the listing, and not after it', async () => {
  for (let n = 0; n < 6; n += 1) await plant(newId(), n);
  const { nextCursor = '' } = await page();
  await rename(path.join(registry.root, markerName), path.join(registry.root, 'away'));
  await rm(path.join(registry.root, 'blobs'), { recursive: true });
  await mkdir(path.join(registry.root, 'blobs'));
  await refuses(page(nextCursor), 'unavailable');
  await refuses(page(), 'unavailable');
});

test('a page has from 1 to 1,000 blobs', async () => {
  await refuses(page('', 0), 'validation_failed');
  await refuses(page('', 1_001), 'validation_failed');
});
