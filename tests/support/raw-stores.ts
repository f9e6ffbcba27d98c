import {
  DeleteObjectCommand,
  GetObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  S3Client,
} from '@aws-sdk/client-s3';
import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import type { Json } from './client.ts';
import type { S3Server, WebdavServer } from './real-servers.ts';

/** What lies on a backend, read and changed past the service. Keys are those of its replicas. */
export interface RawStore {
  read(key: string): Promise<Buffer>;
  write(key: string, bytes: Buffer): Promise<void>;
  remove(key: string): Promise<void>;
}

/** The folder of a local backend. */
export function rawLocal(backend: Json): RawStore & { keys(): Promise<string[]> } {
  const root = String(backend['config'].root_path);
  return {
    read: (key) => readFile(join(root, key)),
    write: (key, bytes) => writeFile(join(root, key), bytes),
    remove: (key) => rm(join(root, key)),
    keys: async () => {
      const entries = await readdir(join(root, 'blobs'), { recursive: true, withFileTypes: true });
      return entries.filter((entry) => entry.isFile()).map((e) => relative(root, join(e.parentPath, e.name)));
    },
  };
}

/** The bucket of an S3 backend, by a plain client; `server` is reached directly, whatever the backend goes by. */
export function rawS3(
  backend: Json,
  server: S3Server,
): RawStore & { keys(prefix?: string): Promise<string[]>; close(): void } {
  const Bucket = String(backend['config'].bucket);
  const client = plainS3(server);
  return {
    read: async (key) => {
      const { Body } = await client.send(new GetObjectCommand({ Bucket, Key: key }));
      return Buffer.from((await Body?.transformToByteArray()) ?? []);
    },
    write: async (key, bytes) => void (await client.send(new PutObjectCommand({ Bucket, Key: key, Body: bytes }))),
    remove: async (key) => void (await client.send(new DeleteObjectCommand({ Bucket, Key: key }))),
    keys: async (Prefix = 'blobs/') => {
      const keys: string[] = [];
      let from: string | undefined;
      do {
        const page = await client.send(
          new ListObjectsV2Command({ Bucket, Prefix, ...(from ? { ContinuationToken: from } : {}) }),
        );
        keys.push(...(page.Contents ?? []).map(({ Key = '' }) => Key));
        from = page.NextContinuationToken;
      } while (from);
      return keys;
    },
    close: () => client.destroy(),
  };
}

export function plainS3(server: S3Server): S3Client {
  return new S3Client({
    endpoint: server.url,
    region: 'us-east-1',
    forcePathStyle: true,
    credentials: { accessKeyId: server.accessKey, secretAccessKey: server.secretKey },
  });
}

/** The folder of a WebDAV backend. */
export function rawWebdav(
  backend: Json,
  server: WebdavServer,
): RawStore & { moveAway(): Promise<void>; moveBack(): Promise<void>; isEmpty(): Promise<boolean> } {
  const authorization = `Basic ${Buffer.from(`${server.user}:${server.password}`).toString('base64')}`;
  const root = String(backend['config'].root_path);
  const call = async (
    method: string,
    path: string,
    more: Record<string, string> = {},
    body?: Buffer,
  ): Promise<Buffer> => {
    const init = { method, headers: { authorization, ...more } };
    const answer = await fetch(new URL(path, server.url), body ? { ...init, body: new Uint8Array(body) } : init);
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status}`);
    return Buffer.from(await answer.arrayBuffer());
  };
  const move = (from: string, to: string): Promise<Buffer> =>
    call('MOVE', from, { destination: new URL(to, server.url).href, overwrite: 'F' });
  return {
    read: (key) => call('GET', `${root}/${key}`),
    write: async (key, bytes) => void (await call('PUT', `${root}/${key}`, {}, bytes)),
    remove: async (key) => void (await call('DELETE', `${root}/${key}`)),
    moveAway: async () => {
      await move(`${root}/`, `${root}-away/`);
      await call('MKCOL', `${root}/`);
    },
    moveBack: async () => {
      await call('DELETE', `${root}/`);
      await move(`${root}-away/`, `${root}/`);
    },
    isEmpty: async () =>
      (await call('PROPFIND', `${root}/`, { depth: '1' })).toString().split('<D:response>').length === 2,
  };
}
