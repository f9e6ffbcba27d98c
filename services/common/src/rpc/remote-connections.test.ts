import { expect, test } from '@jest/globals';
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { Socket } from 'node:net';
import { ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import { TreeService } from '@stowage/proto/stowage/catalog/v1/tree';
import { SystemService } from '@stowage/proto/stowage/system/v1/system';
import type { CallContext } from './context.ts';
import { RemoteConnections } from './remote-connections.ts';

test('all that one service serves is reached through one connection, so that all of it comes back at once', async () => {
  const sockets: Socket[] = [];
  const server = createServer((socket) => sockets.push(socket.on('error', () => undefined)));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const address = server.address();
  if (typeof address !== 'object' || !address) throw new Error('no port');
  const connections = new RemoteConnections({ catalog: { rpc: `127.0.0.1:${address.port}`, bytes: null } });
  const context: CallContext = {
    requestId: 'one-connection',
    actor: null,
    idempotency: null,
    signal: new AbortController().signal,
  };
  const [tree, content] = [connections.client(TreeService), connections.client(ContentService)];
  const system = connections.client(SystemService, 'catalog');
  const options = { timeoutMs: 500 };
  const calls = [
    tree.getNode({}, context, options),
    content.getContent({}, context, options),
    system.check({}, context, options),
  ];
  await Promise.allSettled(calls);
  expect(sockets).toHaveLength(1);
  await connections.close();
  for (const socket of sockets) socket.destroy();
  server.close();
});
