import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { once } from 'node:events';
import { environmentOf, startBeside } from '../support/beside.ts';
import type { Beside } from '../support/beside.ts';
import { expectStatus, logIn, until } from '../support/client.ts';
import type { Client } from '../support/client.ts';
import { FaultReport, timesOf } from '../support/fault-report.ts';
import { faultSizes } from '../support/fault-sizes.ts';
import { childrenOf, isGone } from '../support/processes.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { startSystem } from '../support/system.ts';
import type { System } from '../support/system.ts';
import { RollingClient } from './support/rolling-client.ts';

const stopLimitMs = 30_000;
const clientCount = 20;
const report = new FaultReport('R20 every process replaced under load, two of each');
const random = new Random(chooseSeed());
let system: System;
let second: Beside;
let client: Client;

beforeAll(async () => {
  process.stderr.write(`rolling: STOWAGE_TEST_SEED=${random.seed}\n`);
  system = await startSystem('services', {
    STOWAGE_REPLICAS: '2',
    STOWAGE_DRAIN_DELAY: '500ms',
    STOWAGE_JOB_LEASE: '5s',
    STOWAGE_LOG_LEVEL: 'error',
  });
  second = await startBeside(system, 'gateway');
  client = await logIn(system.url);
});

afterAll(async () => {
  await second?.close();
  await system?.close();
  report.print();
});

async function isReady(pid: number): Promise<boolean> {
  const port = (await environmentOf(pid))['STOWAGE_MANAGEMENT_PORT'] ?? '';
  return fetch(`http://127.0.0.1:${port}/api/system/ready`).then(
    ({ status }) => status === 200,
    () => false,
  );
}

/** Ends a process of the launcher's, and waits until the one that is started in its place is ready. Gives its time to end, in ms. */
async function replace(pid: number): Promise<number> {
  const launcher = system.launcher.pid ?? 0;
  const before = await childrenOf(launcher);
  const start = performance.now();
  process.kill(pid, 'SIGTERM');
  await until(() => isGone(pid), stopLimitMs);
  const tookMs = performance.now() - start;
  const fresh = await until(
    async () => (await childrenOf(launcher)).find((one) => !before.includes(one)) ?? null,
    60_000,
  );
  await until(() => isReady(fresh).catch(() => false), 60_000);
  return tookMs;
}

/** The second gateway has no launcher. */
async function replaceSecond(): Promise<void> {
  const { url } = second;
  const exited = once(second.process, 'exit');
  second.process.kill('SIGTERM');
  expect(await exited).toEqual([0, null]);
  second = await startBeside(system, 'gateway', { STOWAGE_PORT: new URL(url).port });
}

test('no request of a client that retries as usual fails, no job is lost, and each process ends well', async () => {
  const directory = String((await client.makeDirectory('rolling'))['id']);
  const clients = Array.from(
    { length: clientCount },
    () => new RollingClient([system.url, second.url], client.token ?? '', directory, random.fork()),
  );
  let stopped = false;
  const running = Promise.all(clients.map((one) => one.run(() => stopped)));
  const jobs: string[] = [];
  const stopMs: number[] = [];
  for (let round = 0; round < faultSizes.rollingRounds; round += 1) {
    for (const pid of await childrenOf(system.launcher.pid ?? 0)) {
      const queued = await until(async () => {
        const answer = await client.post('/api/jobs/enqueue-full-reconcile').catch(() => null);
        return answer?.status === 202 || answer?.status === 200 || answer?.status === 201 ? answer : null;
      });
      jobs.push(String(queued.json['id'] ?? queued.json['job']?.['id']));
      stopMs.push(await replace(pid));
    }
    await replaceSecond();
  }
  stopped = true;
  await running;
  const met: Record<string, number> = {};
  for (const one of clients) {
    for (const [what, count] of Object.entries(one.met)) met[what] = (met[what] ?? 0) + count;
  }
  report.add('clients', {
    files: clients.reduce((sum, { files }) => sum + files, 0),
    requests: clients.reduce((sum, { requests }) => sum + requests, 0),
    failed: clients.reduce((sum, { failures }) => sum + failures.length, 0),
    met: JSON.stringify(met),
  });
  report.add('processes', { replaced: stopMs.length + faultSizes.rollingRounds, 'time to end': timesOf(stopMs) });
  expect({ seed: random.seed, failures: clients.flatMap(({ failures }) => failures) }).toEqual({
    seed: random.seed,
    failures: [],
  });
  for (const id of jobs) {
    await until(
      async () => expectStatus(await client.get(`/api/jobs/${id}`), 200).json['state'] === 'succeeded',
      60_000,
    );
  }
  const ends = [...system.output().matchAll(/"code":(\w+),"signal":("\w+"|null)/g)].map(([, code]) => code);
  expect(ends).toEqual(stopMs.map(() => '0'));
}, 600_000);
