import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { RequestListener, Server } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { createServer as createTcpServer } from 'node:net';
import type { Server as TcpServer } from 'node:net';
import { newId } from '@stowage/common/ids';
import { selfSigned } from '@stowage/tests/support/certificates';
import { LocalRoots } from '../config/local-roots.ts';
import { EndpointDenied, EndpointGuard } from '../network/endpoint-guard.ts';
import type { LookupAll } from '../network/endpoint-guard.ts';
import { deniedByDefault } from '../settings.ts';
import type { BlobStore } from './blob-store.ts';
import { unreachable } from './connection-faults.ts';
import { usualLimits } from './idle-limit.ts';
import { blobKey } from './keys.ts';
import { openStore } from './open-store.ts';
import { S3Store } from './s3-store.ts';
import { seededContent, writeContent } from './test-content.ts';
import { readAll, refuses } from './test-store.ts';
import { usualWebdavLimits } from './webdav-limits.ts';
import { WebdavStore } from './webdav-store.ts';

type Open = (url: string, lookup?: LookupAll, limits?: typeof hurried) => Promise<BlobStore>;

const key = blobKey(newId());
const s3 = { region: 'us-east-1', bucket: 'some', prefix: '', forcePathStyle: true, sessionToken: null };
const keys = { accessKeyId: 'an-id', secretAccessKey: 'a-secret' };
const hurried = { connectMs: 200, callMs: 200, completeMs: 200, idleMs: 200 };

/** Each store as it is used, over agents that refuse what is denied unless told otherwise. */
const kinds: Record<string, Open> = {
  S3: (url, lookup, limits) =>
    S3Store.open({ endpoint: url, ...s3, ...keys }, guarded(lookup), { ...usualLimits, ...limits }),
  WebDAV: (url, lookup, limits) => {
    const place = { url, rootPath: '/root', username: 'someone', password: 'a-secret' };
    return WebdavStore.open(place, guarded(lookup), { ...usualWebdavLimits, ...limits });
  },
};

/** All that goes over the network, each on its own. */
const calls: ((store: BlobStore) => Promise<unknown>)[] = [
  (store) => store.identity(),
  (store) => store.stat(key),
  (store) => readAll(store, key, 0, 10),
  (store) => writeContent(store, key, seededContent(10, 1)),
  (store) => store.delete(key),
];

function guarded(lookup?: LookupAll) {
  return new EndpointGuard(deniedByDefault, lookup).agents();
}

async function listen(server: Server | TcpServer): Promise<number> {
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const address = server.address();
  if (typeof address !== 'object' || !address) throw new Error('no port');
  return address.port;
}

describe.each(Object.entries(kinds))('the network between us and %s', (_kind, open) => {
  let server: Server;
  let port: number;
  let asked: string[];
  let connections: number;
  let answer: RequestListener;

  beforeEach(async () => {
    [asked, connections] = [[], 0];
    answer = (_request, response) => response.writeHead(404).end();
    server = createServer((request, response) => {
      asked.push(`${request.method} ${request.url}`);
      request.resume();
      answer(request, response);
    });
    server.on('connection', () => (connections += 1));
    port = await listen(server);
  });

  afterEach(async () => {
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
  });

  test('a certificate that nobody vouches for is refused before anything is sent', async () => {
    const secure = createHttpsServer(selfSigned(), (request, response) => {
      asked.push(String(request.url));
      response.end();
    });
    const store = await open(`https://127.0.0.1:${await listen(secure)}`);
    for (const call of calls) await refuses(call(store), 'unavailable');
    expect(asked).toEqual([]);
    secure.closeAllConnections();
    secure.close();
  });

  test('a port that is closed, filtered, silent or of something else reads the same', async () => {
    const closed = createTcpServer();
    const closedPort = await listen(closed);
    closed.close();
    await once(closed, 'close');
    const silent = createTcpServer((socket) => socket.on('error', () => undefined));
    const banner = createTcpServer((socket) => socket.on('error', () => undefined).end('SSH-2.0-OpenSSH_9.2\r\n\r\n'));
    const never: LookupAll = () => undefined;
    const stores = await Promise.all([
      open(`http://127.0.0.1:${closedPort}`),
      open(`http://127.0.0.1:${await listen(silent)}`, undefined, hurried),
      open(`http://127.0.0.1:${await listen(banner)}`),
      // As of a packet that is dropped: the connection never stands.
      open(`http://filtered.example:${port}`, never, hurried),
      open(`http://unknown.example:${port}`, (_name, _options, callback) => callback(new Error('ENOTFOUND'), [])),
    ]);
    for (const store of stores) {
      for (const call of calls.slice(0, 3))
        expect((await refuses(call(store), 'unavailable')).detail).toBe(unreachable);
    }
    expect(asked).toEqual([]);
    silent.close();
    banner.close();
  });

  test('a name that leads elsewhere from one connection to the next is connected to nowhere that is denied', async () => {
    let leadsTo = ['127.0.0.1'];
    const rebinding: LookupAll = (_name, _options, callback) =>
      callback(
        null,
        leadsTo.map((address) => ({ address, family: address.includes(':') ? 6 : 4 })),
      );
    answer = (_request, response) => response.writeHead(404, { connection: 'close' }).end();
    const store = await open(`http://rebinding.example:${port}`, rebinding);
    expect(await store.identity()).toBeNull();
    const before = connections;
    expect(before).toBeGreaterThan(0);
    for (const addresses of [
      ['169.254.169.254'],
      ['127.0.0.1', '169.254.169.254'],
      ['::ffff:169.254.169.254'],
      ['fe80::1'],
    ]) {
      leadsTo = addresses;
      for (const call of calls) expect(await refuses(call(store), 'unavailable')).toBeInstanceOf(EndpointDenied);
    }
    expect(connections).toBe(before);
  });

  test.each([
    'http://169.254.169.254',
    'http://2852039166',
    'http://0xa9fea9fe',
    'http://0251.0376.0251.0376',
    'http://169.254.43518',
    'http://0xa9.254.169.254',
    'http://１６９.254.169.254',
    'http://169。254。169。254',
    'http://[::ffff:169.254.169.254]',
    'http://[::ffff:a9fe:a9fe]',
    'http://[64:ff9b::a9fe:a9fe]',
    'http://[2002:a9fe:a9fe::]',
    'http://[fd00:ec2::254]',
    'http://[fe80::1]',
    'http://0.0.0.0',
    'http://0',
    'http://[::]',
    'http://100.100.100.200',
    'http://168.63.129.16',
    'https://169.254.169.254',
  ])('%s is denied, and no name is asked for', async (url) => {
    const looked: string[] = [];
    const store = await open(url, (name, _options, callback) => {
      looked.push(name);
      callback(new Error('not to be asked'), []);
    });
    for (const call of calls) expect(await refuses(call(store), 'unavailable')).toBeInstanceOf(EndpointDenied);
    expect(looked).toEqual([]);
  });

  test('an answer that bears a bomb of entities, or an outer one, does nothing', async () => {
    const laughs = Array.from({ length: 9 }, (_, at) => {
      const inner = at === 0 ? 'ha' : `&l${at - 1};`.repeat(10);
      return `<!ENTITY l${at} "${inner}">`;
    });
    const outer = `<!ENTITY f SYSTEM "http://127.0.0.1:${port}/stolen">`;
    const bomb = `<?xml version="1.0"?><!DOCTYPE x [${laughs.join('')}${outer}]><Error><Code>&l8;&f;</Code></Error>`;
    const store = await open(`http://127.0.0.1:${port}`);
    for (const status of [200, 207, 404, 500]) {
      answer = (_request, response) => response.writeHead(status, { 'content-type': 'application/xml' }).end(bomb);
      for (const call of [() => store.list(null, 10), () => store.sweep(new Date())]) {
        await call().catch((error: unknown) => expect(String(error)).not.toContain('hahaha'));
      }
    }
    expect(asked.filter((request) => request.includes('stolen'))).toEqual([]);
  });
});

describe('a backend without keys', () => {
  const variables = ['AWS_EC2_METADATA_SERVICE_ENDPOINT', 'AWS_CONTAINER_CREDENTIALS_FULL_URI'] as const;
  const found = { AWS_ACCESS_KEY_ID: 'of-the-machine', AWS_SECRET_ACCESS_KEY: 'of-the-machine' };

  test('asks nobody for some: no metadata service, no environment', async () => {
    let connections = 0;
    const metadata = createServer((_request, response) => response.end('{}'));
    metadata.on('connection', () => (connections += 1));
    const url = `http://127.0.0.1:${await listen(metadata)}`;
    const settings = { ...Object.fromEntries(variables.map((name) => [name, url])), ...found };
    const before = { ...process.env };
    Object.assign(process.env, settings);
    try {
      for (const secrets of [{}, { access_key_id: 'an-id' }, { secret_access_key: 'a-secret' }]) {
        const config = { endpoint: url, region: 'us-east-1', bucket: 'some' };
        const place = { id: newId(), type: 's3', config, secrets, isDefault: false, marked: false } as const;
        const needs = { roots: new LocalRoots([]), agents: guarded(), record: () => undefined };
        expect((await refuses(openStore(place, needs), 'unavailable')).detail).toMatch(/has no (access_key_id|secret)/);
      }
      expect(connections).toBe(0);
      // One that has keys uses these, and asks nobody but its server.
      const authorizations: string[] = [];
      const server = createServer((request, response) => {
        authorizations.push(String(request.headers.authorization));
        response.writeHead(404).end();
      });
      const store = await kinds['S3']?.(`http://127.0.0.1:${await listen(server)}`);
      expect(await store?.identity()).toBeNull();
      expect(authorizations).toEqual([expect.stringContaining('Credential=an-id/')]);
      expect(connections).toBe(0);
      server.closeAllConnections();
      server.close();
    } finally {
      for (const name of Object.keys(settings)) delete process.env[name];
      Object.assign(process.env, before);
      metadata.close();
    }
  });
});
