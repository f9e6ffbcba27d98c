import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { readFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { expectStatus, logIn } from '../support/client.ts';
import type { Client } from '../support/client.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { residentBytes } from '../support/process-memory.ts';
import { startSystem, uniqueName } from '../support/system.ts';
import type { Mode, System } from '../support/system.ts';
import { makeUpload } from '../support/uploads.ts';
import { mutate, pick } from './support/http-mutator.ts';
import { garbageConnection, sendGarbledCalls } from './support/http2-garbage.ts';
import { report, sized } from './support/size.ts';

const mebibyte = 1024 * 1024;
const random = new Random(chooseSeed());
const atOnce = 32;
const hangMs = 20_000;

/** All that comes back until the connection closes; null where that takes too long. */
function exchange(url: string, bytes: Buffer): Promise<string | null> {
  const { hostname, port } = new URL(url);
  const { promise, resolve } = Promise.withResolvers<string | null>();
  const received: Buffer[] = [];
  const socket = connect({ host: hostname, port: Number(port) });
  const timer = setTimeout(() => resolve(null), hangMs);
  socket.on('data', (piece: Buffer) => received.push(piece));
  // A connection that is reset is closed, which is a fair answer.
  socket.on('error', () => undefined);
  socket.once('close', () => resolve(Buffer.concat(received).toString('latin1')));
  socket.end(bytes);
  return promise.finally(() => {
    clearTimeout(timer);
    socket.destroy();
  });
}

/** What an answer breaks of what is promised to whoever sends nonsense; null where nothing. */
function faultOf(answer: string | null): string | null {
  if (answer === null) return `the connection was still open after ${hangMs} ms`;
  if (answer !== '' && !/^HTTP\/1\.1 \d{3} /.test(answer)) return 'the answer is no HTTP';
  for (const [, status] of answer.matchAll(/HTTP\/1\.1 (5\d\d)/g)) {
    const shed = status === '503' && /\r\nretry-after: \d+/i.test(answer);
    if (!shed && status !== '501' && status !== '505') return `the answer is ${status}`;
  }
  return /\n\s+at \S+ \(|node_modules|node:internal/.test(answer) ? 'the answer shows a stack' : null;
}

async function inParallel(count: number, work: () => Promise<void>): Promise<void> {
  let left = count;
  const run = async (): Promise<void> => {
    while ((left -= 1) >= 0) await work();
  };
  await Promise.all(Array.from({ length: atOnce }, run));
}

/** Requests that are right, on which each round improves. */
async function seeds(client: Client): Promise<string[]> {
  const file = await client.putFile(uniqueName('seed'), 'the content of the seed');
  const upload = await makeUpload(client, { length: 1_000_000, metadata: { filename: 'garbled' } });
  const common = `Host: stowage.test\r\nAuthorization: Bearer ${client.token}`;
  const json = (path: string, body: string): string =>
    `POST ${path} HTTP/1.1\r\n${common}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  const tus = `${common}\r\nTus-Resumable: 1.0.0`;
  return [
    `GET /api/directories/root/children?limit=5 HTTP/1.1\r\n${common}\r\n\r\n`,
    `GET /api/files/${file['id']}/download HTTP/1.1\r\n${common}\r\nRange: bytes=0-5\r\n\r\n`,
    `GET /api/system/health HTTP/1.1\r\nHost: stowage.test\r\n\r\n`,
    json('/api/directories', '{"name": "garbled", "on_conflict": "fail"}'),
    json(`/api/files/${file['id']}/rename`, '{"name": "other.txt"}'),
    json('/api/auth/login', '{"username": "nobody", "password": "wrong"}'),
    `POST /files HTTP/1.1\r\n${tus}\r\nUpload-Length: 5\r\nUpload-Metadata: filename YQ==\r\nContent-Length: 0\r\n\r\n`,
    `PATCH ${upload.path} HTTP/1.1\r\n${tus}\r\nUpload-Offset: 0\r\nContent-Type: application/offset+octet-stream\r\nContent-Length: 5\r\n\r\nbytes`,
    `HEAD ${upload.path} HTTP/1.1\r\n${tus}\r\n\r\n`,
    `OPTIONS /files HTTP/1.1\r\nHost: stowage.test\r\n\r\n`,
  ];
}

describe.each<Mode>(['standalone', 'services'])('requests that are none, %s', (mode) => {
  let system: System;
  let client: Client;

  beforeAll(async () => {
    report(`garbage, ${mode}`, { STOWAGE_TEST_SEED: random.seed });
    // Short limits: what waits for more bytes is to be over soon. Uploads are made by the thousand.
    system = await startSystem(mode, {
      STOWAGE_HEADERS_TIMEOUT: '2s',
      STOWAGE_JSON_TIMEOUT: '2s',
      STOWAGE_IDLE_TIMEOUT: '3s',
      STOWAGE_LOGIN_FAILURES_PER_ADDRESS: '100000',
      STOWAGE_LOGIN_FAILURES_PER_USER: '5',
    });
    client = await logIn(system.url);
  });

  afterAll(() => system?.close());

  test('get a 4xx or a closed connection, and crash nothing', async () => {
    const right = await seeds(client);
    const count = sized(2_500, 50_000);
    const pid = await system.pidOf('gateway');
    const before = await residentBytes(pid);
    const statuses: Record<string, number> = {};
    const faults: string[] = [];
    const own = random.fork();
    await inParallel(count, async () => {
      const bytes = mutate(own, pick(own, right));
      const answer = await exchange(system.url, bytes);
      const status = answer === null ? 'none' : (/^HTTP\/1\.1 (\d{3})/.exec(answer)?.[1] ?? 'closed');
      statuses[status] = (statuses[status] ?? 0) + 1;
      const fault = faultOf(answer);
      if (fault)
        faults.push(
          `${fault}: ${JSON.stringify(bytes.toString('latin1').slice(0, 600))} -> ${JSON.stringify(answer?.slice(0, 300))}`,
        );
    });
    const growth = Math.round(((await residentBytes(pid)) - before) / mebibyte);
    report(`garbage, ${mode}`, { requests: count, statuses, growth_mib: growth });
    expect({ seed: random.seed, faults: faults.slice(0, 10) }).toEqual({ seed: random.seed, faults: [] });
    expect(await system.pidOf('gateway')).toBe(pid);
    expectStatus(await client.get('/api/system/ready'), 200);
    expect(statuses['400']).toBeGreaterThan(count / 20);
    expect(system.output()).not.toMatch(/uncaught|unhandled/i);
  });

  if (mode === 'services')
    test.each(['catalog', 'upload', 'backend-registry', 'placement', 'export'])(
      'leave the inner ports of %s as they were',
      async (service) => {
        const pid = await system.pidOf(service);
        const environment = await readFile(`/proc/${pid}/environ`, 'utf8');
        const portOf = (name: string): number => Number(new RegExp(`(?:^|\\0)${name}=(\\d+)`).exec(environment)?.[1]);
        const own = random.fork();
        const rpc = portOf('STOWAGE_RPC_PORT');
        const begun = performance.now();
        await inParallel(sized(100, 5_000), () => garbageConnection(own, rpc));
        const answers = await sendGarbledCalls(own, rpc, sized(100, 2_000));
        const right = await seeds(client);
        const bytesUrl = `http://127.0.0.1:${portOf('STOWAGE_BYTES_PORT')}`;
        if (['upload', 'backend-registry'].includes(service))
          await inParallel(sized(200, 5_000), async () => {
            const answer = await exchange(bytesUrl, mutate(own, pick(own, right)));
            expect(answer).not.toBeNull();
          });
        report(`garbage, ${service}`, { answers, ms: Math.round(performance.now() - begun) });
        expect(await system.pidOf(service)).toBe(pid);
        expectStatus(await client.get('/api/system/ready'), 200);
        await client.putFile(`after-${service}`, 'still takes files');
        expect(answers['0'] ?? 0).toBe(0);
      },
    );

  test('an answer that breaks a promise is found', () => {
    expect(faultOf(null)).not.toBeNull();
    expect(faultOf('HTTP/1.1 500 Internal Server Error\r\n\r\n')).not.toBeNull();
    expect(faultOf('HTTP/1.1 503 Service Unavailable\r\n\r\n')).not.toBeNull();
    expect(
      faultOf('HTTP/1.1 400 Bad Request\r\n\r\n{"detail": "Error\\n    at f (x.js:1:1)\n at f (node:internal/x)"}'),
    ).not.toBeNull();
    expect(faultOf('HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\n\r\n')).toBeNull();
    expect(faultOf('')).toBeNull();
  });
});
