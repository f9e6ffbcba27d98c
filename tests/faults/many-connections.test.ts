import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { request } from 'node:http';
import type { IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expectStatus, logIn } from '../support/client.ts';
import type { Client } from '../support/client.ts';
import { MemoryWatch } from '../support/process-memory.ts';
import { startSystem } from '../support/system.ts';
import type { System } from '../support/system.ts';
import { append, finalize, makeUpload } from '../support/uploads.ts';
import { report, sized } from './support/size.ts';
import { askSteadily, openDescriptors, percentile } from './support/steady-load.ts';

const mebibyte = 1024 * 1024;
const idleConnections = sized(5_000, 10_000);
const activeConnections = 100;
const readers = sized(20, 100);
const readMs = sized(12_000, 60_000);

let system: System;
let client: Client;
let watch: MemoryWatch;
const sockets: Socket[] = [];

beforeAll(async () => {
  system = await startSystem('services');
  client = await logIn(system.url);
  watch = await MemoryWatch.start(new Map([['gateway', await system.pidOf('gateway')]]));
});

afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
});

afterAll(async () => {
  watch?.stop();
  await system?.close();
});

/** One that asked once and is kept alive, from one of four loopback addresses. */
async function openIdle(index: number): Promise<void> {
  const { hostname, port } = new URL(system.url);
  const socket = connect({ host: hostname, port: Number(port), localAddress: `127.0.0.${(index % 4) + 2}` });
  sockets.push(socket);
  socket.on('error', () => undefined);
  socket.write('GET /api/system/health HTTP/1.1\r\nHost: stowage.test\r\n\r\n');
  await once(socket, 'data');
}

test(`${idleConnections} idle connections cost little, and ${activeConnections} active ones meet no error`, async () => {
  const target = { url: system.url, path: '/api/directories/root/children', token: client.token, timeoutMs: 30_000 };
  const load = async (ms: number): ReturnType<typeof askSteadily> => {
    const end = performance.now() + ms;
    return askSteadily(target, activeConnections, () => performance.now() > end);
  };
  const warm = await load(4_000);
  await watch.restart();
  const descriptors = await openDescriptors(await system.pidOf('gateway'));
  for (let opened = 0; opened < idleConnections; opened += 100)
    await Promise.all(Array.from({ length: 100 }, (_, index) => openIdle(opened + index)));
  const outcomes = await load(8_000);
  const held = (await openDescriptors(await system.pidOf('gateway'))) - descriptors;
  const { gateway: growth = Infinity } = await watch.growth();
  const failed = outcomes.filter(({ status }) => status !== 200).length;
  report('idle connections', {
    idle: held,
    active: activeConnections,
    growth_mib: growth,
    requests: outcomes.length,
    failed,
    p99_ms_without: percentile(warm, 0.99),
    p99_ms_with: percentile(outcomes, 0.99),
  });
  expect(held).toBeGreaterThan(idleConnections * 0.9);
  expect(outcomes.length).toBeGreaterThan(activeConnections);
  expect(failed).toBe(0);
  expect(growth).toBeLessThan(250);
}, 180_000);

async function largeFile(size: number): Promise<string> {
  const made = await makeUpload(client, { length: size, metadata: { filename: 'large' } });
  const piece = randomBytes(16 * mebibyte);
  for (let offset = 0; offset < size; offset += piece.length)
    expectStatus(await append(client, made.path, offset, piece), 204);
  return String(expectStatus(await finalize(client, made), 201).json['id']);
}

async function openDownload(id: string): Promise<IncomingMessage> {
  const call = request(`${client.url}/api/files/${id}/download`, {
    agent: false,
    headers: { authorization: `Bearer ${client.token}` },
  });
  call.end();
  const [response]: IncomingMessage[] = await once(call, 'response');
  if (response?.statusCode !== 200) throw new Error(`a download was answered with ${response?.statusCode}`);
  return response;
}

/** 10 KiB a second, until the time is over. */
async function readSlowly(response: IncomingMessage): Promise<number> {
  let read = 0;
  const end = performance.now() + readMs;
  while (performance.now() < end) {
    const piece: Buffer | null = response.read(Math.min(10 * 1024, response.readableLength));
    read += piece?.length ?? 0;
    await sleep(1_000);
  }
  response.destroy();
  return read;
}

test(`each of ${readers} readers at 10 KiB/s makes the gateway hold 4 MiB at most`, async () => {
  const id = await largeFile(128 * mebibyte);
  // What as many fast readers need is not counted.
  const fast = await Promise.all(Array.from({ length: readers }, () => openDownload(id)));
  await Promise.all(
    fast.map(async (response) => {
      let left = 24 * mebibyte;
      for await (const piece of response) if ((left -= piece.length) < 0) break;
    }),
  );
  await sleep(2_000);
  await watch.restart();
  const responses = await Promise.all(Array.from({ length: readers }, () => openDownload(id)));
  const read = await Promise.all(responses.map(readSlowly));
  const { gateway: growth = Infinity } = await watch.growth();
  report('slow readers', { readers, growth_mib: growth, mib_each: Math.round((growth / readers) * 100) / 100 });
  expect(Math.min(...read)).toBeGreaterThan((readMs / 1_000 / 2) * 10 * 1024);
  expect(growth / readers).toBeLessThan(4);
}, 240_000);
