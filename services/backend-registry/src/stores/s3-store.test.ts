import { randomUUID } from 'node:crypto';
import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import {
  CreateBucketCommand,
  CreateMultipartUploadCommand,
  DeleteObjectCommand,
  ListMultipartUploadsCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  S3Client,
  UploadPartCommand,
} from '@aws-sdk/client-s3';
import { expect, test } from '@jest/globals';
import { inspect } from 'node:util';
import { newId } from '@stowage/common/ids';
import { CuttingProxy } from '@stowage/tests/support/cutting-proxy';
import { Random } from '@stowage/tests/support/random';
import { blobKey } from './keys.ts';
import { seededContent } from './test-content.ts';
import { never, refuses } from './test-store.ts';
import { describeWith, s3Server } from '@stowage/tests/support/real-servers';
import type { S3Server } from '@stowage/tests/support/real-servers';
import { blobStoreSuite } from './blob-store-suite.ts';
import { markerName } from './identity-marker.ts';
import { S3Store } from './s3-store.ts';
import type { S3Config } from './s3-config.ts';

const agents = { http: new HttpAgent({ keepAlive: true }), https: new HttpsAgent({ keepAlive: true }) };
const bucket = `store-${randomUUID()}`;
let made: Promise<unknown> | null = null;

function configFor(server: S3Server, prefix: string): S3Config {
  return {
    endpoint: server.url,
    region: 'us-east-1',
    bucket,
    prefix,
    forcePathStyle: true,
    accessKeyId: server.accessKey,
    secretAccessKey: server.secretKey,
    sessionToken: null,
  };
}

async function makeBucket(client: S3Client): Promise<void> {
  made ??= client.send(new CreateBucketCommand({ Bucket: bucket }));
  await made;
}

/** A client beside the store, to look from outside. */
function outsider({ url, accessKey, secretKey }: S3Server): S3Client {
  const credentials = { accessKeyId: accessKey, secretAccessKey: secretKey };
  return new S3Client({ endpoint: url, region: 'us-east-1', forcePathStyle: true, credentials });
}

describeWith('S3', s3Server(), (server) => {
  blobStoreSuite('an S3 store', async () => {
    const client = outsider(server);
    await makeBucket(client);
    const prefix = `tests/${randomUUID()}`;
    const at = (key: string): { Bucket: string; Key: string } => ({ Bucket: bucket, Key: `${prefix}/${key}` });
    const state = async (): Promise<Record<string, number>> => {
      const { Contents = [], IsTruncated } = await client.send(
        new ListObjectsV2Command({ Bucket: bucket, Prefix: `${prefix}/` }),
      );
      if (IsTruncated) throw new Error('too many objects for a look');
      const { Uploads = [] } = await client.send(new ListMultipartUploadsCommand({ Bucket: bucket }));
      if (Uploads.some(({ Key }) => Key?.startsWith(prefix))) throw new Error('a multipart upload was left behind');
      const sizes: Record<string, number> = {};
      for (const { Key = '', Size = -1 } of Contents) {
        const key = Key.slice(prefix.length + 1);
        if (key.startsWith('blobs/')) sizes[key] = Size;
        else if (key !== markerName) throw new Error(`${key} should not be here`);
      }
      return sizes;
    };
    return {
      store: await S3Store.open(configFor(server, prefix), agents),
      state,
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
    const right = configFor(server, 'x');
    const wrong: [string, S3Config][] = [
      ['access key or the secret key', { ...right, secretAccessKey: 'wrong-secret' }],
      ['access key or the secret key', { ...right, accessKeyId: 'wrong-access' }],
      ['bucket of this backend does not exist', { ...right, bucket: `no-${randomUUID()}` }],
    ];
    for (const [told, config] of wrong) {
      const store = await S3Store.open(config, agents);
      const key = blobKey(newId());
      const content = seededContent(2_000_000, 1);
      const calls = [
        () => store.identity(),
        () => store.claim(newId()),
        () => store.list(null, 1),
        () => store.stat(key),
        () => store.read(key, { start: 0, end: 1 }, never),
        () => store.write(key, content, content.body(), never),
      ];
      for (const call of calls) {
        const error = await refuses(call(), 'unavailable');
        expect(error.detail).toContain(told);
        expect(inspect(error, { depth: 20, showHidden: true })).not.toMatch(/wrong-(secret|access)/);
      }
    }
  });

  test('a connection to S3 that is cut in a write leaves nothing, wherever it is cut', async () => {
    const client = outsider(server);
    await makeBucket(client);
    const random = new Random(7);
    const proxy = await CuttingProxy.start(server.url, () => random.integer(0, 3_500_000));
    const cutAgents = { http: new HttpAgent(), https: new HttpsAgent() };
    const [prefix, content] = [`tests/${randomUUID()}`, seededContent(3_000_000, 1)];
    const store = await S3Store.open({ ...configFor(server, prefix), endpoint: proxy.url }, cutAgents);
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
    const direct = await S3Store.open(configFor(server, prefix), agents);
    const { blobs } = await direct.list(null, 100);
    for (const { key, size } of blobs) {
      expect(size).toBe(content.size);
      written.delete(key);
    }
    expect([...written]).toEqual([]);
    client.destroy();
    await proxy.close();
  });
});
