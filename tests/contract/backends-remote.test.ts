import { CreateBucketCommand, DeleteObjectCommand, PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import { beforeAll, describe, expect, test } from '@jest/globals';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { expectStatus } from '@stowage/tests/support/client';
import type { Client, Json } from '@stowage/tests/support/client';
import { admin } from '@stowage/tests/support/contract';
import { describeWith, s3Server, webdavServer } from '@stowage/tests/support/real-servers';
import { selfSigned } from '@stowage/tests/support/certificates';
import { uniqueName } from '@stowage/tests/support/system';

const markerName = '.stowage-backend.json';
let root: Client;

beforeAll(async () => {
  root = await admin();
});

async function make(type: string, config: Json): Promise<Json> {
  return expectStatus(await root.post('/api/backends', { name: uniqueName('backend'), type, config }), 201).json;
}

async function patch(backend: Json, config: Json): Promise<Json> {
  return expectStatus(await root.call('PATCH', `/api/backends/${backend['id']}`, { body: { config } }), 200).json;
}

async function check(backend: Json): Promise<Json> {
  return expectStatus(await root.post(`/api/backends/${backend['id']}/check`), 200).json['health'];
}

describeWith('S3', s3Server(), (server) => {
  const bucket = uniqueName('bucket');
  const client = new S3Client({
    endpoint: server.url,
    region: 'us-east-1',
    forcePathStyle: true,
    credentials: { accessKeyId: server.accessKey, secretAccessKey: server.secretKey },
  });
  const config = (): Json => ({
    endpoint: server.url,
    region: 'us-east-1',
    bucket,
    prefix: uniqueName('prefix'),
    access_key_id: server.accessKey,
    secret_access_key: server.secretKey,
  });

  beforeAll(async () => {
    await client.send(new CreateBucketCommand({ Bucket: bucket }));
  });

  test('a backend is marked, probed and healthy', async () => {
    const given = config();
    const { access_key_id, secret_access_key, ...shown } = given;
    expect([access_key_id, secret_access_key]).toEqual([server.accessKey, server.secretKey]);
    expect(await make('s3', given)).toMatchObject({
      config: shown,
      secret_fields: ['access_key_id', 'secret_access_key'],
      health: { status: 'healthy', detail: null },
    });
  });

  test('a wrong key, a wrong bucket and a wrong port are told apart, and mended by a PATCH', async () => {
    const backend = await make('s3', { ...config(), secret_access_key: 'not the key' });
    expect(backend['health']).toMatchObject({
      status: 'unhealthy',
      detail: expect.stringMatching(/refuses the access key/),
    });
    expect((await patch(backend, { secret_access_key: server.secretKey }))['health'].status).toBe('healthy');
    expect((await patch(backend, { bucket: uniqueName('bucket') }))['health'].detail).toMatch(
      /bucket .* does not exist/,
    );
    expect((await patch(backend, { bucket, endpoint: 'http://127.0.0.1:9' }))['health'].detail).toMatch(
      /can not be reached/,
    );
    expect((await patch(backend, { endpoint: server.url }))['health'].status).toBe('healthy');
  });

  test('one that lost its marker, or bears another’s, is unhealthy', async () => {
    const backend = await make('s3', config());
    const at = { Bucket: bucket, Key: `${backend['config'].prefix}/${markerName}` };
    await client.send(new DeleteObjectCommand(at));
    expect(await check(backend)).toMatchObject({
      status: 'unhealthy',
      detail: expect.stringMatching(/^marker: .*no identity/),
    });
    await client.send(new PutObjectCommand({ ...at, Body: JSON.stringify({ backend_id: backend['id'] }) }));
    expect(await check(backend)).toMatchObject({ status: 'healthy' });
    const { hostname } = new URL(server.url);
    const other = server.url.replace(hostname, hostname === 'localhost' ? '127.0.0.1' : 'localhost');
    const second = await make('s3', { ...config(), endpoint: other, prefix: backend['config'].prefix });
    expect(second['health']).toMatchObject({
      status: 'unhealthy',
      detail: expect.stringMatching(/^marker: .*another/),
    });
  });

  test('a hundred changes that leave its secrets out keep them, whoever else changes it', async () => {
    const backend = await make('s3', config());
    const rename = async (): Promise<void> => {
      const body = { name: uniqueName('backend'), config: { secret_access_key: '', region: 'us-east-1' } };
      expectStatus(await root.call('PATCH', `/api/backends/${backend['id']}`, { body }), 200);
    };
    for (let round = 0; round < 25; round += 1) await Promise.all([rename(), rename(), rename(), rename()]);
    expect(await check(backend)).toMatchObject({ status: 'healthy' });
    expect((await root.get(`/api/backends/${backend['id']}`)).json['version']).toBe(101);
  });
});

describeWith('WebDAV', webdavServer(), (server) => {
  const config = (): Json => ({
    url: server.url,
    root_path: `/${uniqueName('folder')}/below`,
    username: server.user,
    password: server.password,
  });

  test('a backend is marked, probed and healthy', async () => {
    const { password, ...shown } = config();
    expect(await make('webdav', { ...shown, password })).toMatchObject({
      config: shown,
      secret_fields: ['password'],
      health: { status: 'healthy', detail: null },
    });
  });

  test('a wrong password is told, and mended by a PATCH', async () => {
    const backend = await make('webdav', { ...config(), password: 'not the password' });
    expect(backend['health']).toMatchObject({
      status: 'unhealthy',
      detail: expect.stringMatching(/refuses the user name/),
    });
    expect((await patch(backend, { password: server.password }))['health']).toMatchObject({ status: 'healthy' });
  });

  test('one without root_path uses /stowage, and is warned', async () => {
    const { root_path: _, ...rest } = config();
    const backend = await make('webdav', rest);
    expect(backend['config'].root_path).toBe('/stowage');
    // Another run may have marked that folder as its own.
    if (backend['health'].status === 'healthy') expect(backend['health'].detail).toMatch(/root_path/);
  });
});

describe('An endpoint', () => {
  const s3 = { region: 'us-east-1', bucket: 'team-files', access_key_id: 'id', secret_access_key: 'key' };

  test.each(['s3', 'webdav'])('that redirects is not followed, nor given what it asks for (%s)', async (type) => {
    const asked: string[] = [];
    const target = createServer((request, response) => {
      asked.push(String(request.url));
      response.end();
    }).listen(0, '127.0.0.1');
    await once(target, 'listening');
    const to = `http://127.0.0.1:${(target.address() as AddressInfo).port}/stolen`;
    const redirecting = createServer((_request, response) => response.writeHead(307, { location: to }).end());
    redirecting.listen(0, '127.0.0.1');
    await once(redirecting, 'listening');
    const url = `http://127.0.0.1:${(redirecting.address() as AddressInfo).port}`;
    const config = type === 's3' ? { ...s3, endpoint: url } : { url, username: 'ada', password: 'hush' };
    try {
      expect((await make(type, config))['health'].status).toBe('unhealthy');
      expect(asked).toEqual([]);
    } finally {
      redirecting.close();
      target.close();
    }
  });

  test('whose certificate nobody vouches for is refused, and named', async () => {
    const asked: string[] = [];
    const secure = createHttpsServer(selfSigned(), (request, response) => {
      asked.push(String(request.url));
      response.end();
    }).listen(0, '127.0.0.1');
    await once(secure, 'listening');
    const url = `https://127.0.0.1:${(secure.address() as AddressInfo).port}`;
    try {
      for (const backend of [
        await make('s3', { ...s3, endpoint: url }),
        await make('webdav', { url, root_path: '/x', username: 'ada', password: 'hush' }),
      ]) {
        const detail = "marker: The certificate of the backend's server is not trusted.";
        expect(backend['health']).toMatchObject({ status: 'unhealthy', detail });
      }
      expect(asked).toEqual([]);
    } finally {
      secure.closeAllConnections();
      secure.close();
    }
  });

  test('that never answers is given up in time, and reads as one that is closed', async () => {
    const silent = createServer(() => undefined).listen(0, '127.0.0.1');
    await once(silent, 'listening');
    const url = `http://127.0.0.1:${(silent.address() as AddressInfo).port}`;
    try {
      const credentials = { username: 'ada', password: 'hush' };
      const closed = 'http://127.0.0.1:9';
      const healths = await Promise.all([
        make('webdav', { url, root_path: '/x', ...credentials }),
        make('webdav', { url: closed, root_path: '/x', ...credentials }),
        make('s3', { ...s3, endpoint: url }),
        make('s3', { ...s3, endpoint: closed }),
      ]);
      const details = healths.map(({ health }) => health.detail);
      expect(new Set(details)).toEqual(new Set(['marker: The backend can not be reached, or did not answer in time.']));
    } finally {
      silent.closeAllConnections();
      silent.close();
    }
  });
});
