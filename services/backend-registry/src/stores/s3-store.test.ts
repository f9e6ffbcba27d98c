import { expect, test } from '@jest/globals';
import { randomUUID } from 'node:crypto';
import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import { inspect } from 'node:util';
import {
  CreateMultipartUploadCommand,
  DeleteObjectCommand,
  PutObjectCommand,
  UploadPartCommand,
} from '@aws-sdk/client-s3';
import { newId } from '@stowage/common/ids';
import { CuttingProxy } from '@stowage/tests/support/cutting-proxy';
import { Random } from '@stowage/tests/support/random';
import { describeWith, s3Server } from '@stowage/tests/support/real-servers';
import { blobStoreSuite } from './blob-store-suite.ts';
import { describeAppendableStore } from './conformance.ts';
import type { StoreState } from './conformance.ts';
import { markerName } from './identity-marker.ts';
import { blobKey } from './keys.ts';
import type { S3Config } from './s3-config.ts';
import { S3Store } from './s3-store.ts';
import { agents, s3Place } from './s3-test-server.ts';
import { seededContent } from './test-content.ts';
import { never, refuses } from './test-store.ts';

function stateOf(objects: Record<string, number>): StoreState {
  const state: StoreState = { staged: {}, blobs: {} };
  for (const [key, size] of Object.entries(objects)) {
    const [top, id = ''] = key.split('/');
    if (top === 'staging') state.staged[id] = (state.staged[id] ?? 0) + size;
    else if (top === 'blobs') state.blobs[key] = size;
    else if (key !== markerName) throw new Error(`${key} should not be here`);
  }
  return state;
}

describeWith('S3', s3Server(), (server) => {
  describeAppendableStore('an S3 store', async () => {
    const { config, client, objects } = await s3Place(server);
    return {
      store: await S3Store.open(config, agents),
      state: async () => stateOf(await objects()),
      close: async () => client.destroy(),
    };
  });

  blobStoreSuite('an S3 store', async () => {
    const { config, client, bucket, keyOf, objects } = await s3Place(server);
    const at = (path: string): { Bucket: string; Key: string } => ({ Bucket: bucket, Key: keyOf(path) });
    return {
      store: await S3Store.open(config, agents),
      state: async () => stateOf(await objects()).blobs,
      plant: async (path, content) => {
        await client.send(new PutObjectCommand({ ...at(path), Body: content }));
      },
      unplant: async (path) => {
        await client.send(new DeleteObjectCommand(at(path)));
      },
      killWriter: async (key) => {
        const { UploadId } = await client.send(new CreateMultipartUploadCommand(at(key)));
        await client.send(new UploadPartCommand({ ...at(key), UploadId, PartNumber: 1, Body: Buffer.from('half') }));
      },
      close: async () => client.destroy(),
    };
  });

  test('an S3 store tells an admin what is wrong with keys and bucket, and never a key', async () => {
    const { config, client } = await s3Place(server);
    const wrong: [string, S3Config][] = [
      ['access key or the secret key', { ...config, secretAccessKey: 'wrong-secret' }],
      ['access key or the secret key', { ...config, accessKeyId: 'wrong-access' }],
      ['bucket of this backend does not exist', { ...config, bucket: `no-${randomUUID()}` }],
    ];
    for (const [told, bad] of wrong) {
      const store = await S3Store.open(bad, agents);
      const key = blobKey(newId());
      const content = seededContent(2_000_000, 1);
      const calls = [
        () => store.identity(),
        () => store.claim(newId()),
        () => store.list(null, 1),
        () => store.stat(key),
        () => store.read(key, { start: 0, end: 1 }, never),
        () => store.write(key, content, content.body(), never),
        () => store.createStaged(newId()),
      ];
      for (const call of calls) {
        const error = await refuses(call(), 'unavailable');
        expect(error.detail).toContain(told);
        expect(inspect(error, { depth: 20, showHidden: true })).not.toMatch(/wrong-(secret|access)/);
      }
    }
    client.destroy();
  });

  test('a multipart upload that still grows is not swept, however long ago it was begun', async () => {
    const { config, client, bucket, keyOf } = await s3Place(server);
    const store = await S3Store.open(config, agents);
    const place = { Bucket: bucket, Key: keyOf(blobKey(newId())) };
    const { UploadId } = await client.send(new CreateMultipartUploadCommand(place));
    const begun = Date.now();
    // Both clocks are that of this machine.
    while (Date.now() < begun + 20) await new Promise(setImmediate);
    const before = new Date(begun + 10);
    await client.send(new UploadPartCommand({ ...place, UploadId, PartNumber: 1, Body: 'part' }));
    expect(await store.sweep(before)).toBe(0);
    expect(await store.sweep(new Date(Date.now() + 10_000))).toBe(1);
    client.destroy();
  });

  test('a connection to S3 that is cut in a write leaves nothing, wherever it is cut', async () => {
    const { config, client } = await s3Place(server);
    const random = new Random(7);
    const proxy = await CuttingProxy.start(server.url, () => random.integer(0, 3_500_000));
    const cutAgents = { http: new HttpAgent(), https: new HttpsAgent() };
    const store = await S3Store.open({ ...config, endpoint: proxy.url }, cutAgents);
    const content = seededContent(3_000_000, 1);
    const written = new Set<string>();
    for (let round = 0; round < 30; round += 1) {
      const key = blobKey(newId());
      const done = await store.write(key, content, content.body(), never).then(
        () => true,
        () => false,
      );
      if (done) written.add(key);
    }
    expect(proxy.cuts).toBeGreaterThan(5);
    const { blobs } = await (await S3Store.open(config, agents)).list(null, 100);
    for (const { key, size } of blobs) {
      expect(size).toBe(content.size);
      written.delete(key);
    }
    expect([...written]).toEqual([]);
    client.destroy();
    await proxy.close();
  });
});
