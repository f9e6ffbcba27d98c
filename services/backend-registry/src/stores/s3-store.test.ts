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

/** A client beside the store, to look from outside. */
function outsider({ url, accessKey, secretKey }: S3Server): S3Client {
  const credentials = { accessKeyId: accessKey, secretAccessKey: secretKey };
  return new S3Client({ endpoint: url, region: 'us-east-1', forcePathStyle: true, credentials });
}

describeWith('S3', s3Server(), (server) => {
  blobStoreSuite('an S3 store', async () => {
    const client = outsider(server);
    made ??= client.send(new CreateBucketCommand({ Bucket: bucket }));
    await made;
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
});
