import { DeleteObjectCommand, GetObjectCommand, PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Json } from './client.ts';
import type { S3Server, WebdavServer } from './real-servers.ts';

/** What lies on a backend, reached past Stowage. */
export interface StoredObjects {
  /** The bytes under a key; null where there are none. */
  get(key: string): Promise<Buffer | null>;
  put(key: string, bytes: Buffer): Promise<void>;
  remove(key: string): Promise<void>;
}

/** On the disk of a local backend. */
export function localObjects(backend: Json): StoredObjects {
  const place = (key: string): string => join(backend['config'].root_path, key);
  return {
    get: async (key) => readFile(place(key)).catch(() => null),
    put: async (key, bytes) => {
      await mkdir(dirname(place(key)), { recursive: true });
      await writeFile(place(key), bytes);
    },
    remove: (key) => rm(place(key), { force: true }),
  };
}

/** In the bucket of an S3 backend. */
export function s3Objects(server: S3Server, backend: Json): StoredObjects {
  const credentials = { accessKeyId: server.accessKey, secretAccessKey: server.secretKey };
  const client = new S3Client({ endpoint: server.url, region: 'us-east-1', forcePathStyle: true, credentials });
  const at = (key: string) => ({ Bucket: String(backend['config'].bucket), Key: key });
  return {
    get: async (key) => {
      const found = await client.send(new GetObjectCommand(at(key))).catch(() => null);
      return found?.Body ? Buffer.from(await found.Body.transformToByteArray()) : null;
    },
    put: async (key, bytes) => {
      await client.send(new PutObjectCommand({ ...at(key), Body: bytes }));
    },
    remove: async (key) => {
      await client.send(new DeleteObjectCommand(at(key)));
    },
  };
}

/** In the folder of a WebDAV backend. */
export function webdavObjects(server: WebdavServer, backend: Json): StoredObjects {
  const headers = { authorization: `Basic ${btoa(`${server.user}:${server.password}`)}` };
  const root = `${server.url.replace(/\/$/, '')}${backend['config'].root_path}`;
  const send = async (method: string, key: string, body?: Buffer): Promise<Buffer | null> => {
    const answer = await fetch(`${root}/${key}`, { method, headers, ...(body ? { body: new Uint8Array(body) } : {}) });
    const bytes = Buffer.from(await answer.arrayBuffer());
    if (answer.ok || answer.status === 405) return bytes;
    if (answer.status === 404 && method !== 'PUT') return null;
    throw new Error(`${method} ${key} was answered ${answer.status}`);
  };
  return {
    get: (key) => send('GET', key),
    put: async (key, bytes) => {
      const folders = dirname(key).split('/');
      for (const [index] of folders.entries()) {
        if (key.includes('/')) await send('MKCOL', folders.slice(0, index + 1).join('/'));
      }
      await send('PUT', key, bytes);
    },
    remove: async (key) => {
      await send('DELETE', key);
    },
  };
}
