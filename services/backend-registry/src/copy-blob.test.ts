import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { PutObjectCommand } from '@aws-sdk/client-s3';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { unavailable } from '@stowage/common/errors';
import { newId } from '@stowage/common/ids';
import { CopyResult } from '@stowage/proto/stowage/backend_registry/v1/blob';
import { describeWith, s3Server } from '@stowage/tests/support/real-servers';
import { Bandwidth } from './bandwidth.ts';
import { copyBlob } from './copy-blob.ts';
import type { BlobStore, ServerCopy } from './stores/blob-store.ts';
import { blobKey } from './stores/keys.ts';
import { LocalDirectory } from './stores/local-directory.ts';
import { agents, s3Place } from './stores/s3-test-server.ts';
import { S3Store } from './stores/s3-store.ts';
import { digestOfBlob, seededContent, writeContent } from './stores/test-content.ts';
import type { TestContent } from './stores/test-content.ts';
import { never, refuses } from './stores/test-store.ts';
import { WrappedStore } from './stores/wrappers/wrapped-store.ts';
import { startTestRegistry } from './test-registry.ts';
import type { TestRegistry } from './test-registry.ts';

const mebibyte = 1024 * 1024;
const [fromId, toId] = [newId(), newId()];
let registry: TestRegistry;

beforeAll(async () => {
  registry = await startTestRegistry();
  await registry.admin.query(
    `insert into registry.backends (id, name, type, config) values ($1, 'from', 's3', '{}'), ($2, 'to', 's3', '{}')`,
    [fromId, toId],
  );
});
afterAll(() => registry.close());

async function copy(from: BlobStore, to: BlobStore, key: string, { size, sha256 }: TestContent): Promise<CopyResult> {
  const open = async (id: string): Promise<BlobStore> => (id === fromId ? from : to);
  const backends = { openFresh: open, recheck: open };
  const needs = { reads: registry.db, backends, bandwidth: new Bandwidth(null) };
  return copyBlob(needs, { from: fromId, to: toId, blob: { key, size, sha256 } }, never);
}

/** Takes nothing that comes through this process. */
class OnlyServerCopies extends WrappedStore {
  override async write(): Promise<void> {
    throw unavailable('This went through us.');
  }
}

/** Its server copies nothing. */
class Unwilling extends WrappedStore {
  override async serverCopy(): Promise<ServerCopy> {
    return { make: () => Promise.reject(unavailable('The server does not want to.')) };
  }
}

describeWith('S3', s3Server(), (server) => {
  async function place(): Promise<{ store: BlobStore; overwrite(key: string, content: Buffer): Promise<void> }> {
    const { config, client, bucket, keyOf } = await s3Place(server);
    return {
      store: new WrappedStore(await S3Store.open(config, agents), []),
      overwrite: async (key, content) => {
        await client.send(new PutObjectCommand({ Bucket: bucket, Key: keyOf(key), Body: content }));
      },
    };
  }

  describe('a copy within one S3 server', () => {
    test.each([0, 1, 5 * mebibyte + 1, 64 * mebibyte + 1])('of %d bytes is made by it alone', async (size) => {
      const [{ store: source }, { store: target }] = await Promise.all([place(), place()]);
      const content = seededContent(size, 1);
      const key = blobKey(newId());
      await writeContent(source, key, content);
      expect(await copy(source, new OnlyServerCopies(target, []), key, content)).toBe(CopyResult.COPIED);
      expect(await target.stat(key)).toEqual({ size });
      expect((await digestOfBlob(target, key, 0, size)).equals(content.sha256)).toBe(true);
    });

    test('is made only of what hashed right: the target keeps what it has', async () => {
      const [{ store: source, overwrite }, { store: target }] = await Promise.all([place(), place()]);
      const content = seededContent(mebibyte, 1);
      const key = blobKey(newId());
      await writeContent(target, key, content);
      await overwrite(key, seededContent(mebibyte, 2).slice(0, mebibyte));
      expect(await copy(source, target, key, content)).toBe(CopyResult.SOURCE_CORRUPT);
      expect((await digestOfBlob(target, key, 0, mebibyte)).equals(content.sha256)).toBe(true);
    });

    test('is not made of a blob that was replaced since it was read', async () => {
      const [{ store: source, overwrite }, { store: target }] = await Promise.all([place(), place()]);
      const content = seededContent(mebibyte, 1);
      const key = blobKey(newId());
      await writeContent(source, key, content);
      const pinned = await target.serverCopy(source, key);
      await overwrite(key, seededContent(mebibyte, 2).slice(0, mebibyte));
      await refuses(Promise.resolve(pinned?.make(never)), 'unavailable');
      expect(await target.stat(key)).toBeNull();
    });

    test('that the server is not willing to make goes through us', async () => {
      const [{ store: source }, { store: target }] = await Promise.all([place(), place()]);
      const content = seededContent(mebibyte, 1);
      const key = blobKey(newId());
      await writeContent(source, key, content);
      expect(await copy(source, new Unwilling(target, []), key, content)).toBe(CopyResult.COPIED);
      expect((await digestOfBlob(target, key, 0, mebibyte)).equals(content.sha256)).toBe(true);
    });

    test('is none for another user, another server, another kind of store or a missing blob', async () => {
      const { config, client } = await s3Place(server);
      const key = blobKey(newId());
      const source = await S3Store.open(config, agents);
      await writeContent(source, key, seededContent(1, 1));
      expect(await source.serverCopy(source, key)).not.toBeNull();
      const others = [{ accessKeyId: 'x' }, { endpoint: 'http://127.0.0.1:1' }, { sessionToken: 'x' }, { region: 'x' }];
      for (const other of others) {
        const target = await S3Store.open({ ...config, ...other }, agents);
        expect(await target.serverCopy(source, key)).toBeNull();
      }
      expect(await source.serverCopy(source, blobKey(newId()))).toBeNull();
      const root = await mkdtemp(path.join(tmpdir(), 'stowage-copy-'));
      const local = await LocalDirectory.open(root);
      expect(await local.serverCopy()).toBeNull();
      expect(await source.serverCopy(local, key)).toBeNull();
      await rm(root, { recursive: true });
      client.destroy();
    });
  });
});
