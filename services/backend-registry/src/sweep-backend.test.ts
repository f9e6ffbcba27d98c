import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { CreateMultipartUploadCommand } from '@aws-sdk/client-s3';
import { readdir, utimes, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { Readable } from 'node:stream';
import { newId } from '@stowage/common/ids';
import { createLogger } from '@stowage/common/runtime/logger';
import { describeWith, s3Server, webdavServer } from '@stowage/tests/support/real-servers';
import { blobKey } from './stores/keys.ts';
import { s3Place } from './stores/s3-test-server.ts';
import { refuses } from './stores/test-store.ts';
import { RawFolder } from './stores/test-webdav.ts';
import { temporaryName } from './stores/webdav-temporaries.ts';
import { sweepBackend } from './sweep-backend.ts';
import type { Swept } from './sweep-backend.ts';
import { context, startTestRegistry } from './test-registry.ts';
import type { TestRegistry, TestReplica } from './test-registry.ts';

const dayMs = 24 * 3_600_000;
const logger = createLogger('test', 'silent');
let registry: TestRegistry;
let replica: TestReplica;

beforeAll(async () => {
  registry = await startTestRegistry();
});
afterAll(() => registry.close());
beforeEach(async () => {
  await registry.admin.query('delete from upload.uploads');
  await registry.reset();
  replica = registry.replica();
  await replica.setUp();
});

/** Sweeps as if it were some days later. */
async function sweepIn(days: number, backendId: string): Promise<Swept> {
  const needs = { db: registry.db, backends: replica.stores, logger };
  return sweepBackend(needs, backendId, new Date(Date.now() + days * dayMs));
}

async function stage(backendId: string, body = 'some'): Promise<string> {
  const stagedId = newId();
  await replica.blobs.createStaged({ backendId, stagedId }, context());
  const limit = BigInt(body.length);
  const request = { backendId, stagedId, offset: 0n, limit, fence: 1n };
  await replica.append(request, Readable.from([Buffer.from(body)]), context());
  return stagedId;
}

/** A row of the upload service. */
async function know(id: string): Promise<void> {
  await registry.admin.query(
    `insert into upload.uploads (id, user_id, file_id, blob_id, expires_at) values ($1, $1, $1, $1, now())`,
    [id],
  );
}

async function offset(backendId: string, stagedId: string): Promise<bigint> {
  return (await replica.blobs.statStaged({ backendId, stagedId }, context())).offset;
}

/** The promise about staged content, wherever it grows. */
async function sweepsStaged(backendId: string): Promise<void> {
  const orphans = [await stage(backendId), await stage(backendId), await stage(backendId, '')];
  // With no upload known at all it may be the database that is wrong.
  expect((await sweepIn(2, backendId)).staged).toBe(0);
  const known = await stage(backendId);
  await know(known);
  expect((await sweepIn(0, backendId)).staged).toBe(0);
  expect((await sweepIn(2, backendId)).staged).toBe(3);
  expect((await sweepIn(2, backendId)).staged).toBe(0);
  for (const orphan of orphans) await refuses(offset(backendId, orphan), 'not_found');
  expect(await offset(backendId, known)).toBe(4n);
}

describe('a sweep of a local backend', () => {
  let backendId: string;

  beforeEach(async () => {
    backendId = (await registry.rows())[0]?.id ?? '';
  });

  test('removes staged content that belongs to no upload, a day after it was last written to', () =>
    sweepsStaged(backendId));

  test('removes what writes left half-done, and leaves what is being written', async () => {
    const stale = new Date(Date.now() - 2 * dayMs);
    const left = ['staging/x.limit.new.tmp', `.stowage-backend.json.${newId()}.tmp`, `blobs/${newId()}.tmp`];
    const files = left.map((name) => path.join(registry.root, name));
    for (const file of files) await writeFile(file, 'half');
    for (const file of files.slice(0, 2)) await utimes(file, stale, stale);
    const { temporaries } = await replica.backends.sweepBackend({ id: backendId }, context());
    expect(temporaries).toBe(2n);
    expect(await readdir(path.join(registry.root, 'staging'))).toEqual([]);
    expect((await readdir(registry.root)).sort()).toEqual(['.stowage-backend.json', 'blobs', 'staging']);
  });

  test('removes a side file whose content is gone', async () => {
    await know(newId());
    const file = path.join(registry.root, 'staging', `${newId()}.limit`);
    await writeFile(file, '0');
    expect(await sweepIn(2, backendId)).toEqual({ temporaries: 0, staged: 1 });
    expect(await readdir(path.join(registry.root, 'staging'))).toEqual([]);
  });

  test('goes through more staged content than a page has', async () => {
    await know(newId());
    const names = Array.from({ length: 1_203 }, () => newId());
    for (const name of names) await writeFile(path.join(registry.root, 'staging', name), 'x');
    expect((await sweepIn(2, backendId)).staged).toBe(1_203);
    expect(await readdir(path.join(registry.root, 'staging'))).toEqual([]);
  });

  test('does nothing where uploads can’t be asked for, or the marker is another’s', async () => {
    await know(newId());
    const orphan = await stage(backendId);
    await registry.admin.query('revoke select on upload.known_uploads from stowage_backend_registry');
    await expect(sweepIn(2, backendId)).rejects.toThrow();
    await registry.admin.query('grant select on upload.known_uploads to stowage_backend_registry');
    expect(await offset(backendId, orphan)).toBe(4n);
    await writeFile(path.join(registry.root, '.stowage-backend.json'), JSON.stringify({ backend_id: newId() }));
    await refuses(sweepIn(2, backendId), 'unavailable');
    expect(await readdir(path.join(registry.root, 'staging'))).toEqual([orphan]);
  });
});

describeWith('S3', s3Server(), (server) => {
  test('a sweep of S3 removes staged content and multipart uploads that nobody goes on with', async () => {
    const { config, client, bucket, keyOf, objects } = await s3Place(server);
    const { endpoint, region, prefix, accessKeyId, secretAccessKey } = config;
    const keys = { access_key_id: accessKeyId, secret_access_key: secretAccessKey };
    const { backend } = await replica.backends.createBackend(
      { name: 's3', type: 's3', config: { endpoint, region, bucket, prefix, ...keys } },
      context(),
    );
    const id = backend?.id ?? '';
    await sweepsStaged(id);
    await client.send(new CreateMultipartUploadCommand({ Bucket: bucket, Key: keyOf(blobKey(newId())) }));
    expect(await sweepIn(0, id)).toEqual({ temporaries: 0, staged: 0 });
    expect(await sweepIn(2, id)).toEqual({ temporaries: 1, staged: 0 });
    // It throws where a multipart upload is left.
    expect(Object.keys(await objects()).filter((key) => !key.startsWith('staging/'))).toEqual([
      '.stowage-backend.json',
    ]);
    client.destroy();
  });
});

describeWith('WebDAV', webdavServer(), (server) => {
  test('a sweep of WebDAV removes temporary objects that nobody goes on with', async () => {
    const folder = await RawFolder.make(server);
    const { url, username, password } = folder.config;
    const config = { url, username, password, root_path: `/stowage-tests/${newId()}` };
    const { backend } = await replica.backends.createBackend({ name: 'dav', type: 'webdav', config }, context());
    const id = backend?.id ?? '';
    expect(backend?.health?.status).toBe('healthy');
    const headers = { authorization: `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}` };
    const put = new URL(`${config.root_path.slice(1)}/tmp/${temporaryName()}`, server.url);
    expect((await fetch(put, { method: 'PUT', headers, body: 'half' })).status).toBe(201);
    expect(await sweepIn(0, id)).toEqual({ temporaries: 0, staged: 0 });
    expect(await sweepIn(2, id)).toEqual({ temporaries: 1, staged: 0 });
    expect((await fetch(put, { headers })).status).toBe(404);
  });
});
