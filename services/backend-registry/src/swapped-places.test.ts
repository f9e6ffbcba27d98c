import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { createHash } from 'node:crypto';
import { cp, mkdir, rename } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { newId } from '@stowage/common/ids';
import { VerifyResult } from '@stowage/proto/stowage/backend_registry/v1/blob';
import { refuses } from './stores/test-store.ts';
import { context, startTestRegistry } from './test-registry.ts';
import type { TestRegistry } from './test-registry.ts';

let registry: TestRegistry;

beforeAll(async () => {
  registry = await startTestRegistry();
});
afterAll(() => registry.close());

test('what was written where a backend lay before it was moved is never acknowledged', async () => {
  const replica = registry.replica();
  await replica.setUp();
  const home = (await registry.rows())[0]?.id ?? '';
  const before = await replica.stores.open(home);
  await expect(replica.stores.confirm(home, before)).resolves.toBeUndefined();
  const moved = `${registry.root}-moved`;
  await cp(registry.root, moved, { recursive: true });
  const place = async (root: string): Promise<void> => {
    const config = JSON.stringify({ root_path: root });
    await registry.admin.query('update registry.backends set config = $1 where id = $2', [config, home]);
    replica.stores.doubt(home);
  };
  await place(moved);
  await refuses(replica.stores.confirm(home, before), 'unavailable');
  await refuses(replica.stores.confirm(home, before), 'unavailable');
  await place(registry.root);
  const again = await replica.stores.open(home);
  await expect(replica.stores.confirm(home, again)).resolves.toBeUndefined();
});

test('what was written to a disk that was put in the place of a backend a moment ago is never acknowledged', async () => {
  const replica = registry.replica();
  await replica.setUp();
  const home = (await registry.rows())[0]?.id ?? '';
  await replica.stores.open(home);
  await rename(registry.root, `${registry.root}-away`);
  for (const folder of ['blobs', 'staging']) await mkdir(`${registry.root}/${folder}`, { recursive: true });
  const stagedId = newId();
  const upload = async (): Promise<Parameters<typeof replica.blobs.sealBlob>[0]> => {
    const part = { backendId: home, stagedId, offset: 0n, limit: 3n, fence: 1n, create: true };
    await replica.append(part, Readable.from([Buffer.from('abc')]), context());
    return { backendId: home, stagedId, blobId: newId(), size: 3n, waitMs: 5_000 };
  };
  const there = await upload();
  await refuses(replica.blobs.sealBlob(there, context()), 'unavailable');
  expect((await registry.rows())[0]).toMatchObject({ health_status: 'unhealthy', health_step: 'marker' });
  await rename(registry.root, `${registry.root}-other`);
  await rename(`${registry.root}-away`, registry.root);
  await replica.backends.checkBackend({ id: home }, context());
  await refuses(replica.blobs.sealBlob(there, context()), 'not_found');
  const { blob } = await replica.blobs.sealBlob(await upload(), context());
  const claim = {
    backendId: home,
    key: blob?.key ?? '',
    size: 3n,
    sha256: createHash('sha256').update('abc').digest(),
  };
  expect((await replica.blobs.verifyBlob(claim, context())).result).toBe(VerifyResult.GOOD);
});
