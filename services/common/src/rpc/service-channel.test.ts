import { afterEach, expect, test } from '@jest/globals';
import { SystemService } from '@stowage/proto/stowage/system/v1/system';
import { createLogger } from '../runtime/logger.ts';
import { backgroundContext } from './context.ts';
import { endpoint } from './contract.ts';
import type { Client } from './contract.ts';
import { grpcClient, openChannel } from './grpc-client.ts';
import { GrpcServer } from './grpc-server.ts';
import { ServiceChannel } from './service-channel.ts';

const context = backgroundContext(new AbortController().signal);
const stops: (() => void | Promise<void>)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

/** A process at an address of its own that answers with it, once it is let. */
async function listenAt(host: string, port: number, allowed: Promise<void> = Promise.resolve()): Promise<number> {
  const check = async (): Promise<{ ready: boolean; detail: string }> => {
    await allowed;
    return { ready: true, detail: host };
  };
  const server = new GrpcServer([endpoint(SystemService, { check })], createLogger('test', 'silent'));
  stops.push(() => server.close(1_000));
  return server.listen(host, port);
}

function clientOf(
  port: number,
  lookup: (name: string) => Promise<string[]>,
  limits: { patienceMs?: number; idleMs?: number } = {},
): Client<typeof SystemService> {
  const channel = new ServiceChannel(`processes.test:${port}`, (target) => openChannel(target, [SystemService], null), {
    lookup,
    ...limits,
  });
  stops.push(() => channel.close());
  return grpcClient(SystemService, channel);
}

test('a process whose address is gone gets no more calls, and those under way end', async () => {
  const held = Promise.withResolvers<void>();
  const port = await listenAt('127.0.0.1', 0, held.promise);
  await listenAt('127.0.0.2', port);
  let addresses = ['127.0.0.1'];
  const client = clientOf(port, async () => addresses);
  const underWay = client.check({}, context);
  addresses = ['127.0.0.2'];
  let last = '';
  const deadline = Date.now() + 30_000;
  while (last !== '127.0.0.2' && Date.now() < deadline) {
    const answer = client.check({}, context, { timeoutMs: 500 }).catch(() => null);
    last = (await answer)?.detail ?? '';
  }
  expect(last).toBe('127.0.0.2');
  held.resolve();
  await expect(underWay).resolves.toMatchObject({ detail: '127.0.0.1' });
});

test('a name that has no address is an outage, and one that has none for a while keeps those that it had', async () => {
  const port = await listenAt('127.0.0.1', 0);
  let isKnown = false;
  let looks = 0;
  const client = clientOf(port, async () => {
    looks += 1;
    if (!isKnown) throw new Error('ENOTFOUND');
    return ['127.0.0.1'];
  });
  await expect(client.check({}, context)).rejects.toMatchObject({ code: 'unavailable' });
  isKnown = true;
  await expect(client.check({}, context)).resolves.toMatchObject({ detail: '127.0.0.1' });
  isKnown = false;
  const before = looks;
  while (looks === before) await client.check({}, context);
  await expect(client.check({}, context)).resolves.toMatchObject({ detail: '127.0.0.1' });
});

test('a resolver that does not answer is an outage in time', async () => {
  const port = await listenAt('127.0.0.1', 0);
  const answer = Promise.withResolvers<string[]>();
  const client = clientOf(port, () => answer.promise, { patienceMs: 100 });
  await expect(client.check({}, context)).rejects.toMatchObject({ code: 'unavailable' });
  answer.resolve(['127.0.0.1']);
  await expect(client.check({}, context)).resolves.toMatchObject({ detail: '127.0.0.1' });
});

test('the first call after an idle time in which all processes were replaced finds the new one', async () => {
  const port = await listenAt('127.0.0.1', 0);
  let addresses = ['127.0.0.1'];
  const client = clientOf(port, async () => addresses, { idleMs: 0 });
  await expect(client.check({}, context)).resolves.toMatchObject({ detail: '127.0.0.1' });
  await listenAt('127.0.0.2', port);
  await stops.splice(0, 1)[0]?.();
  addresses = ['127.0.0.2'];
  await expect(client.check({}, context)).resolves.toMatchObject({ detail: '127.0.0.2' });
});

test('connections that are made anew lose no call', async () => {
  const port = await listenAt('127.0.0.1', 0);
  let opened = 0;
  const open = (target: string): ReturnType<typeof openChannel> => {
    opened += 1;
    return openChannel(target, [SystemService], null);
  };
  const channel = new ServiceChannel(`127.0.0.1:${port}`, open, { renewMs: 0 });
  stops.push(() => channel.close());
  const client = grpcClient(SystemService, channel);
  for (const deadline = Date.now() + 30_000; opened < 3 && Date.now() < deadline;) await client.check({}, context);
  expect(opened).toBe(3);
});
