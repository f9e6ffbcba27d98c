import { afterEach, expect, test } from '@jest/globals';
import { setTimeout as sleep } from 'node:timers/promises';
import { SystemService } from '@stowage/proto/stowage/system/v1/system';
import { JobService } from '@stowage/proto/stowage/placement/v1/job';
import { createLogger } from '../runtime/logger.ts';
import { backgroundContext } from './context.ts';
import { endpoint } from './contract.ts';
import { GrpcServer } from './grpc-server.ts';
import { RemoteConnections } from './remote-connections.ts';

const logger = createLogger('test', 'silent');
const context = backgroundContext(new AbortController().signal);
const stops: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

/** A process of placement that counts the calls that it took. */
class Process {
  calls = 0;
  port = 0;
  #server = new GrpcServer([], logger);

  async start(): Promise<void> {
    const refuses = async (): Promise<never> => Promise.reject(new Error('nobody asks for it'));
    this.#server = new GrpcServer(
      [
        endpoint(SystemService, { check: async () => ({ ready: true, detail: String(this.port) }) }),
        endpoint(JobService, {
          listJobs: refuses,
          getJob: refuses,
          retryJob: refuses,
          cancelJob: refuses,
          enqueueHealthChecks: refuses,
          enqueueFullReconcile: refuses,
          runPending: async () => {
            this.calls += 1;
            await sleep(5);
            return {};
          },
        }),
      ],
      logger,
    );
    this.port = await this.#server.listen('127.0.0.1', this.port);
  }

  async stop(): Promise<void> {
    await this.#server.close(10_000);
  }
}

async function startPair(): Promise<{ pair: Process[]; connections: RemoteConnections }> {
  const pair = [new Process(), new Process()];
  for (const one of pair) {
    await one.start();
    stops.push(() => one.stop());
  }
  const rpc = `ipv4:${pair.map(({ port }) => `127.0.0.1:${port}`).join(',')}`;
  const connections = new RemoteConnections({ placement: { rpc, bytes: null } });
  stops.push(() => connections.close());
  return { pair, connections };
}

test('calls go to all processes of a service in turn', async () => {
  const { connections } = await startPair();
  const system = connections.client(SystemService, 'placement');
  const answered = new Set<string>();
  while (answered.size < 2) answered.add((await system.check({}, context)).detail);
  expect(answered.size).toBe(2);
});

test('no call is lost or done twice while processes end and start in turn, be it one with side effects', async () => {
  const { pair, connections } = await startPair();
  const jobs = connections.client(JobService);
  let stopped = false;
  let done = 0;
  const callers = Array.from({ length: 16 }, async () => {
    while (!stopped) {
      await jobs.runPending({}, context);
      done += 1;
    }
  });
  const replaced = (async () => {
    for (let round = 0; round < 10; round += 1) {
      for (const one of pair) {
        await one.stop();
        await one.start();
        const calls = one.calls;
        // Only when it takes calls again may the other go.
        while (one.calls === calls) await sleep(5);
      }
    }
    stopped = true;
  })();
  await Promise.all([...callers, replaced]).finally(() => (stopped = true));
  expect(pair.reduce((sum, { calls }) => sum + calls, 0)).toBe(done);
});
