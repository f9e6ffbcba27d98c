import { randomUUID } from 'node:crypto';
import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import { CreateBucketCommand, ListMultipartUploadsCommand, ListObjectsV2Command, S3Client } from '@aws-sdk/client-s3';
import type { S3Server } from '@stowage/tests/support/real-servers';
import type { S3Config } from './s3-config.ts';

export const agents = { http: new HttpAgent({ keepAlive: true }), https: new HttpsAgent({ keepAlive: true }) };

/** A place of its own in a bucket of a real server, and a client beside the store to look at it from outside. */
export interface S3Place {
  config: S3Config;
  client: S3Client;
  bucket: string;
  /** The key of an object below the prefix. */
  keyOf(path: string): string;
  /** The sizes of all objects there, by their key below the prefix; throws where a multipart upload was left behind. */
  objects(): Promise<Record<string, number>>;
}

const bucket = `store-${randomUUID()}`;
let made: Promise<unknown> | null = null;

export async function s3Place({ url, accessKey, secretKey }: S3Server): Promise<S3Place> {
  const credentials = { accessKeyId: accessKey, secretAccessKey: secretKey };
  const client = new S3Client({ endpoint: url, region: 'us-east-1', forcePathStyle: true, credentials });
  made ??= client.send(new CreateBucketCommand({ Bucket: bucket }));
  await made;
  const prefix = `tests/${randomUUID()}`;
  const place = { endpoint: url, region: 'us-east-1', bucket, prefix, forcePathStyle: true, sessionToken: null };
  return {
    config: { ...place, ...credentials },
    client,
    bucket,
    keyOf: (path) => `${prefix}/${path}`,
    objects: () => objectsBelow(client, `${prefix}/`),
  };
}

async function objectsBelow(client: S3Client, prefix: string): Promise<Record<string, number>> {
  const list = new ListObjectsV2Command({ Bucket: bucket, Prefix: prefix });
  const { Contents = [], IsTruncated } = await client.send(list);
  if (IsTruncated) throw new Error('too many objects for a look');
  const { Uploads = [] } = await client.send(new ListMultipartUploadsCommand({ Bucket: bucket }));
  if (Uploads.some(({ Key }) => Key?.startsWith(prefix))) throw new Error('a multipart upload was left behind');
  return Object.fromEntries(Contents.map(({ Key = '', Size = -1 }) => [Key.slice(prefix.length), Size]));
}
