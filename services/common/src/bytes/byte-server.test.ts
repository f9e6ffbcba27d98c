import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { once } from 'node:events';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { backgroundContext } from '../rpc/context.ts';
import type { CallContext } from '../rpc/context.ts';
import { createLogger } from '../runtime/logger.ts';
import { ByteClient } from './byte-client.ts';
import { ByteServer } from './byte-server.ts';
import { downloadEndpoint, readBlob } from './operations.ts';

const logger = createLogger('test', 'silent');
let server: ByteServer;
let client: ByteClient;
let open: (context: CallContext) => Promise<Readable>;

beforeEach(async () => {
  server = new ByteServer([downloadEndpoint(readBlob, (_request, context) => open(context))], logger);
  client = new ByteClient(`http://127.0.0.1:${await server.listen('127.0.0.1', 0)}`);
});
afterEach(async () => {
  await client.close();
  await server.close(0);
});

test('content whose reader left while it was opened is closed, and harms nobody', async () => {
  const leave = new AbortController();
  const opened = Promise.withResolvers<Readable>();
  open = async ({ signal }) => {
    leave.abort();
    await once(signal, 'abort');
    const content = new Readable({ read: () => undefined });
    opened.resolve(content.destroy(new Error('cancelled')));
    return content;
  };
  await expect(client.downloader(readBlob)({}, backgroundContext(leave.signal))).rejects.toThrow();
  const content = await opened.promise;
  if (!content.closed) await new Promise((resolve) => content.once('close', resolve));

  open = async () => Readable.from([Buffer.from('still there')]);
  const context = backgroundContext(new AbortController().signal);
  expect(await text(await client.downloader(readBlob)({}, context))).toBe('still there');
});

test('content that is open when its reader has left is closed', async () => {
  const leave = new AbortController();
  const content = new Readable({ read: () => undefined });
  open = async ({ signal }) => {
    leave.abort();
    await once(signal, 'abort');
    return content;
  };
  await expect(client.downloader(readBlob)({}, backgroundContext(leave.signal))).rejects.toThrow();
  if (!content.closed) await once(content, 'close');
});
