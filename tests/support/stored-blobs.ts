import { ListObjectsV2Command, S3Client } from '@aws-sdk/client-s3';
import { readdir } from 'node:fs/promises';
import { join, relative } from 'node:path';
import type { Json } from './client.ts';
import type { S3Server, WebdavServer } from './real-servers.ts';

/** The servers that backends of tests lie on. */
export interface StoreServers {
  s3?: S3Server;
  webdav?: WebdavServer;
}

/** The keys of all blobs that really lie on a backend, sorted; read past the service. */
export async function storedBlobs(backend: Json, servers: StoreServers): Promise<string[]> {
  return (await storedObjects(backend, servers)).filter((path) => path.startsWith('blobs/'));
}

/** The paths of all that lies on a backend, whoever put it there, sorted; folders are nothing. */
export async function storedObjects(backend: Json, { s3, webdav }: StoreServers): Promise<string[]> {
  const { config } = backend;
  if (backend['type'] === 'local_directory') return (await onDisk(config.root_path)).sort();
  if (backend['type'] === 's3' && s3) return (await inBucket(s3, config.bucket)).sort();
  if (backend['type'] === 'webdav' && webdav) return (await onWebdav(webdav, `${config.root_path}/`)).sort();
  throw new Error(`there is no server for a backend of the type ${backend['type']}`);
}

async function onDisk(root: string): Promise<string[]> {
  const entries = await readdir(root, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  return files.map((entry) => join(relative(root, entry.parentPath), entry.name));
}

async function inBucket(server: S3Server, bucket: string): Promise<string[]> {
  const client = new S3Client({
    endpoint: server.url,
    region: 'us-east-1',
    forcePathStyle: true,
    credentials: { accessKeyId: server.accessKey, secretAccessKey: server.secretKey },
  });
  const keys: string[] = [];
  let after: string | undefined;
  do {
    const page = await client.send(new ListObjectsV2Command({ Bucket: bucket, ContinuationToken: after }));
    keys.push(...(page.Contents ?? []).flatMap(({ Key }) => Key ?? []));
    after = page.NextContinuationToken;
  } while (after !== undefined);
  client.destroy();
  return keys;
}

async function onWebdav(server: WebdavServer, root: string): Promise<string[]> {
  const authorization = `Basic ${Buffer.from(`${server.user}:${server.password}`).toString('base64')}`;
  const walk = async (folder: string): Promise<string[]> => {
    const url = new URL(folder, server.url);
    const answer = await fetch(url, { method: 'PROPFIND', headers: { authorization, depth: '1' } });
    if (answer.status !== 207) throw new Error(`PROPFIND of ${folder} was answered with ${answer.status}`);
    const hrefs = [...(await answer.text()).matchAll(/<D:href>([^<]*)<\/D:href>/gi)].map(([, href = '']) => href);
    const inside = hrefs.map((href) => new URL(href, server.url).pathname).filter((path) => path !== url.pathname);
    const found = await Promise.all(inside.map(async (path) => (path.endsWith('/') ? walk(path) : [path])));
    return found.flat();
  };
  return (await walk(root)).map((path) => path.slice(root.length));
}
