import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import { expectStatus } from './client.ts';
import type { Client, Json } from './client.ts';
import type { S3Server, WebdavServer } from './real-servers.ts';
import { uniqueName } from './system.ts';

/** Makes a bucket of its own on a real S3 server. */
export async function makeBucket(server: S3Server): Promise<string> {
  const bucket = uniqueName('bucket');
  const client = new S3Client({
    endpoint: server.url,
    region: 'us-east-1',
    forcePathStyle: true,
    credentials: { accessKeyId: server.accessKey, secretAccessKey: server.secretKey },
  });
  await client.send(new CreateBucketCommand({ Bucket: bucket }));
  client.destroy();
  return bucket;
}

/** Makes a backend of a bucket of its own on a real S3 server. */
export async function makeS3Backend(admin: Client, server: S3Server): Promise<Json> {
  const config = {
    endpoint: server.url,
    region: 'us-east-1',
    bucket: await makeBucket(server),
    force_path_style: true,
    access_key_id: server.accessKey,
    secret_access_key: server.secretKey,
  };
  return make(admin, { name: uniqueName('s3'), type: 's3', config });
}

/** Makes a backend in a folder of its own on a real WebDAV server. */
export async function makeWebdavBackend(admin: Client, server: WebdavServer): Promise<Json> {
  const config = {
    url: server.url,
    root_path: `/${uniqueName('folder')}`,
    username: server.user,
    password: server.password,
  };
  return make(admin, { name: uniqueName('webdav'), type: 'webdav', config });
}

async function make(admin: Client, backend: Json): Promise<Json> {
  return expectStatus(await admin.post('/api/backends', backend), 201).json;
}
