import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { connect as connectTls } from 'node:tls';
import type { ConnectionOptions, TLSSocket } from 'node:tls';
import { Client as Channel, credentials, Metadata, status } from '@grpc/grpc-js';
import type { ChannelCredentials, ServiceError } from '@grpc/grpc-js';
import { ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import { TreeService } from '@stowage/proto/stowage/catalog/v1/tree';
import { Authority } from '@stowage/tests/support/certificates';
import { ByteServer } from '../bytes/byte-server.ts';
import { downloadEndpoint, readBlob } from '../bytes/operations.ts';
import type { ServiceName } from '../rpc/connections.ts';
import { backgroundContext } from '../rpc/context.ts';
import type { Actor, CallContext } from '../rpc/context.ts';
import type { Endpoint } from '../rpc/contract.ts';
import { GrpcServer, methodDefinition } from '../rpc/grpc-server.ts';
import { RemoteConnections } from '../rpc/remote-connections.ts';
import { createLogger } from '../runtime/logger.ts';
import type { TlsIdentity } from './identity.ts';
import { testIdentity } from './test-identity.ts';

const logger = createLogger('test', 'silent');
const ada: Actor = { userId: 'u', username: 'ada', role: 'admin' };
const authority = new Authority();
const stranger = new Authority();

let rpc: GrpcServer;
let bytes: ByteServer;
let rpcPort: number;
let bytesPort: number;
let seen: (Actor | null)[];
const connections: RemoteConnections[] = [];

/** All calls of a service are answered with nothing, and who was said to be behind them is noted. */
function noting(descriptor: Endpoint['descriptor']): Endpoint {
  return {
    descriptor,
    call: async (method, _request, { actor }) => {
      seen.push(actor);
      return methodDefinition(method).responseDeserialize(Buffer.alloc(0));
    },
  };
}

beforeEach(async () => {
  seen = [];
  rpc = new GrpcServer([noting(TreeService), noting(ContentService)], logger, testIdentity('catalog', authority));
  rpcPort = await rpc.listen('127.0.0.1', 0);
  const content = downloadEndpoint(readBlob, async (_request, { actor }) => {
    seen.push(actor);
    return Readable.from([Buffer.from('content')]);
  });
  bytes = new ByteServer([content], logger, { tls: testIdentity('backend-registry', authority) });
  bytesPort = await bytes.listen('127.0.0.1', 0);
});

afterEach(async () => {
  for (const each of connections.splice(0)) await each.close();
  await rpc.close(0);
  await bytes.close(0);
});

function connectAs(identity: TlsIdentity | null, rpcService: ServiceName = 'catalog'): RemoteConnections {
  const scheme = identity ? 'https' : 'http';
  const made = new RemoteConnections(
    {
      [rpcService]: { rpc: `127.0.0.1:${rpcPort}`, bytes: null },
      'backend-registry': { rpc: 'nowhere:1', bytes: `${scheme}://127.0.0.1:${bytesPort}` },
    },
    identity,
  );
  connections.push(made);
  return made;
}

function context(actor: Actor | null = null): CallContext {
  return { ...backgroundContext(new AbortController().signal), actor };
}

const quick = { timeoutMs: 5_000 };

describe('a service that was given a certificate', () => {
  test('answers the gateway, by gRPC and bytes, and believes it whose request it is', async () => {
    const gateway = connectAs(testIdentity('gateway', authority));
    await gateway.client(TreeService).getNode({}, context(ada), quick);
    expect(await text(await gateway.downloader(readBlob)({}, context(ada)))).toBe('content');
    expect(seen).toEqual([ada, ada]);
  });

  test.each(['placement', 'export', 'backend-registry', 'catalog'] as const)(
    'refuses %s what is not its to ask',
    async (service) => {
      const warnings: unknown[][] = [];
      jest.spyOn(logger, 'warn').mockImplementation((...told: unknown[]) => void warnings.push(told));
      const other = connectAs(testIdentity(service, authority));
      await expect(other.client(TreeService).getNode({}, context(ada), quick)).rejects.toMatchObject({
        code: 'internal',
        cause: { code: status.PERMISSION_DENIED },
      });
      await expect(other.downloader(readBlob)({}, context(ada))).rejects.toMatchObject({ code: 'unavailable' });
      expect(seen).toEqual([]);
      expect(warnings.map(([fields]) => fields)).toEqual([
        { call: '/stowage.catalog.v1.TreeService/GetNode', caller: service },
        { call: 'read-blob', caller: service },
      ]);
      jest.restoreAllMocks();
    },
  );

  test('believes nobody but the gateway in whose name a call is made, but for upload where a file is made', async () => {
    const upload = connectAs(testIdentity('upload', authority));
    await upload.client(TreeService).getNode({}, context(ada), quick);
    await upload.client(ContentService).abandonBlob({}, context(ada), quick);
    await upload.client(ContentService).commitFile({}, context(ada), quick);
    const placement = connectAs(testIdentity('placement', authority));
    await placement.client(ContentService).getBackendUsage({}, context(ada), quick);
    expect(seen).toEqual([null, null, ada, null]);
  });

  test.each<[string, () => ChannelCredentials]>([
    ['no TLS', () => credentials.createInsecure()],
    ['no certificate', () => credentials.createSsl(Buffer.from(authority.cert))],
    ['a certificate of another authority', () => ssl(stranger)],
    ['one that ran out', () => ssl(authority, { from: Date.now() - 20_000, to: Date.now() - 10_000 })],
  ])('takes no gRPC with %s', async (_what, make) => {
    const channel = new Channel(`127.0.0.1:${rpcPort}`, make(), {
      'grpc.ssl_target_name_override': 'catalog.stowage.internal',
    });
    expect(await codeOf(channel)).toBe(status.UNAVAILABLE);
    expect(seen).toEqual([]);
    channel.close();
  });

  test.each<[string, ConnectionOptions]>([
    ['no certificate', {}],
    ['a certificate of another authority', stranger.issue(['gateway.stowage.internal'])],
    ['TLS 1.2', { ...authority.issue(['gateway.stowage.internal']), maxVersion: 'TLSv1.2' }],
  ])('takes no connection with %s', async (_what, options) => {
    for (const port of [rpcPort, bytesPort]) expect(await said(port, options)).toBe('');
    expect(seen).toEqual([]);
  });

  test('is not taken for another service by those who look for one', async () => {
    const gateway = connectAs(testIdentity('gateway', authority), 'upload');
    await expect(
      gateway.client(TreeService, 'upload').getNode({}, context(ada), { timeoutMs: 1_000 }),
    ).rejects.toMatchObject({ code: 'unavailable' });
    expect(seen).toEqual([]);
  });

  test('is not talked to when it is vouched for by another authority', async () => {
    const gateway = connectAs(testIdentity('gateway', authority, stranger));
    const call = gateway.client(TreeService).getNode({}, context(ada), { timeoutMs: 1_000 });
    await expect(call).rejects.toMatchObject({ code: 'unavailable' });
    await expect(gateway.downloader(readBlob)({}, context(ada))).rejects.toMatchObject({ code: 'unavailable' });
    expect(seen).toEqual([]);
  });
});

test('an address without TLS is a mistake where there is a certificate, and the other way round', () => {
  const addresses = (bytesAt: string) => ({ 'backend-registry': { rpc: 'nowhere:1', bytes: bytesAt } });
  const plain = new RemoteConnections(addresses('http://a:1,http://b:1'), testIdentity('gateway', authority));
  expect(() => plain.downloader(readBlob)).toThrow(/has to begin with https:\/\//);
  const secure = new RemoteConnections(addresses('https://a:1'));
  expect(() => secure.downloader(readBlob)).toThrow(/has to begin with http:\/\//);
});

function ssl(by: Authority, validMs?: { from: number; to: number }): ChannelCredentials {
  const { key, cert } = by.issue(['gateway.stowage.internal'], validMs);
  return credentials.createSsl(Buffer.from(authority.cert), Buffer.from(key), Buffer.from(cert));
}

async function codeOf(channel: Channel): Promise<number | undefined> {
  const { path, requestSerialize, responseDeserialize } = methodDefinition(TreeService.method.getNode);
  const request = methodDefinition(TreeService.method.getNode).requestDeserialize(Buffer.alloc(0));
  return new Promise((resolve) => {
    channel.makeUnaryRequest(
      path,
      requestSerialize,
      responseDeserialize,
      request,
      new Metadata(),
      { deadline: Date.now() + 10_000 },
      (error: ServiceError | null) => resolve(error?.code),
    );
  });
}

/** What the server says after the handshake to whoever asks for content over HTTP. */
async function said(port: number, options: ConnectionOptions): Promise<string> {
  const servername = 'catalog.stowage.internal';
  const socket: TLSSocket = connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false, servername, ...options });
  let heard = '';
  socket.on('error', () => undefined).on('data', (piece: Buffer) => (heard += piece.toString('latin1')));
  socket.write('GET /read-blob HTTP/1.1\r\nHost: a\r\n\r\n');
  await new Promise((resolve) => socket.once('close', resolve));
  return heard;
}
