import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { once } from 'node:events';
import { connect } from 'node:http2';
import type { ClientHttp2Session, IncomingHttpHeaders } from 'node:http2';
import { gzipSync } from 'node:zlib';
import { status } from '@grpc/grpc-js';
import { TreeService } from '@stowage/proto/stowage/catalog/v1/tree';
import { createLogger } from '../runtime/logger.ts';
import { pathOf } from './contract.ts';
import { GrpcServer, methodDefinition } from './grpc-server.ts';

let server: GrpcServer;
let session: ClientHttp2Session;
let asked: AbortSignal[];

beforeEach(async () => {
  asked = [];
  const endpoint = {
    descriptor: TreeService,
    call: async (_method: unknown, _request: unknown, { signal }: { signal: AbortSignal }) => {
      asked.push(signal);
      await once(signal, 'abort');
      return methodDefinition(TreeService.method.getNode).responseDeserialize(Buffer.alloc(0));
    },
  };
  server = new GrpcServer([endpoint], createLogger('test', 'silent'), null);
  session = connect(`http://127.0.0.1:${await server.listen('127.0.0.1', 0)}`);
  await once(session, 'remoteSettings');
});

afterEach(async () => {
  session.destroy();
  await server.close(0);
});

/** The length that a message says it has, and whether it says that it is compressed. */
function prefix(length: number, compressed = false): Buffer {
  const bytes = Buffer.alloc(5);
  bytes.writeUInt8(compressed ? 1 : 0);
  bytes.writeUInt32BE(length, 1);
  return bytes;
}

/** Calls by hand; gives the gRPC status. */
async function statusOf(body: Buffer, more: IncomingHttpHeaders = {}): Promise<number> {
  const stream = session.request({
    ':method': 'POST',
    ':path': pathOf(TreeService.method.getNode),
    'content-type': 'application/grpc',
    te: 'trailers',
    ...more,
  });
  const found = new Promise<number>((resolve) => {
    const look = (headers: IncomingHttpHeaders): void => {
      if (headers['grpc-status'] !== undefined) resolve(Number(headers['grpc-status']));
    };
    stream.on('response', look).on('trailers', look);
  });
  stream.on('error', () => undefined).resume();
  stream.end(body);
  return found;
}

test('a message that says it has 1 GiB is refused before it came', async () => {
  expect(await statusOf(prefix(2 ** 30))).toBe(status.RESOURCE_EXHAUSTED);
  expect(asked).toEqual([]);
});

test('so is one that would unpack to more than a message may have', async () => {
  const packed = gzipSync(Buffer.alloc(64 * 1024 * 1024));
  const body = Buffer.concat([prefix(packed.length, true), packed]);
  expect(await statusOf(body, { 'grpc-encoding': 'gzip' })).toBe(status.RESOURCE_EXHAUSTED);
  expect(asked).toEqual([]);
});

test('a call without a deadline is given one', async () => {
  expect(await statusOf(prefix(0))).toBe(status.UNAVAILABLE);
  expect(asked.map(({ aborted }) => aborted)).toEqual([true]);
});

test('a connection may have a thousand calls under way', () => {
  expect(session.remoteSettings.maxConcurrentStreams).toBe(1_000);
});
