import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { once } from 'node:events';
import { Agent, createServer, request } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { RequestGate } from './request-gate.ts';

const waitMs = 300;
let gate: RequestGate;
/** What was let in and is not answered yet. */
let inside: { path: string; request: IncomingMessage; response: ServerResponse }[];
let server: Server;
let agent: Agent;
let origin: string;

beforeEach(async () => {
  // Of its own: what the test before left behind may still come in while it is cleaned up.
  const own: typeof inside = [];
  inside = own;
  agent = new Agent({ keepAlive: true });
  gate = new RequestGate({ atOnce: 2, waiting: 1, waitMs });
  const handler = (call: IncomingMessage, response: ServerResponse): void =>
    void own.push({ path: call.url ?? '', request: call, response });
  server = createServer(gate.guard(handler));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const address = server.address();
  if (typeof address !== 'object' || !address) throw new Error('no port');
  origin = `http://127.0.0.1:${address.port}`;
});

afterEach(async () => {
  agent.destroy();
  server.closeAllConnections();
  server.close();
  await once(server, 'close');
});

interface Sent {
  answer: Promise<IncomingMessage>;
  cut(): void;
}

function send(path: string): Sent {
  const call = request(`${origin}${path}`, { agent });
  const answer = once(call, 'response').then(([response]: IncomingMessage[]) => {
    if (!response) throw new Error('no answer');
    return response.resume();
  });
  answer.catch(() => undefined);
  call.end();
  call.on('error', () => undefined);
  return { answer, cut: () => call.destroy() };
}

async function until(look: () => boolean): Promise<void> {
  while (!look()) await new Promise((resolve) => setTimeout(resolve, 5));
}

const paths = (): string[] => inside.map(({ path }) => path);

function finish(path: string): void {
  const at = inside.findIndex((one) => one.path === path);
  inside.splice(at, 1)[0]?.response.end();
}

async function fill(): Promise<void> {
  send('/1');
  send('/2');
  await until(() => inside.length === 2);
}

/** One more, which waits. */
async function sendWaiting(path: string): Promise<Sent> {
  const arrived = once(server, 'request');
  const sent = send(path);
  await arrived;
  return sent;
}

test('those beyond the limit wait for their turn', async () => {
  await fill();
  await sendWaiting('/3');
  expect(paths()).toEqual(['/1', '/2']);
  finish('/1');
  await until(() => paths().includes('/3'));
});

test('those beyond the queue are told at once to come back', async () => {
  await fill();
  await sendWaiting('/3');
  const { statusCode, headers } = await send('/files/4').answer;
  expect(statusCode).toBe(503);
  expect(headers).toMatchObject({
    'retry-after': '1',
    'content-type': 'application/problem+json',
    'x-request-id': expect.any(String),
    'tus-resumable': '1.0.0',
  });
  expect(headers['connection']).not.toBe('close');
  expect(paths()).toEqual(['/1', '/2']);
});

test('those whose wait is over are told so, though nobody made room', async () => {
  await fill();
  const { answer } = await sendWaiting('/3');
  expect((await answer).statusCode).toBe(503);
  expect(paths()).toEqual(['/1', '/2']);
});

test('those that went away while they waited make room for others', async () => {
  await fill();
  const gone = await sendWaiting('/3');
  gone.cut();
  // Its place is free as soon as the end of its connection was seen: until then others are told to come back.
  for (let status: number | undefined = 503; status === 503;) {
    const sent = await sendWaiting('/4');
    const early = new Promise<null>((resolve) => setTimeout(() => resolve(null), 50));
    status = (await Promise.race([sent.answer, early]))?.statusCode;
  }
  finish('/1');
  await until(() => paths().includes('/4'));
});

test('probes pass', async () => {
  await fill();
  await sendWaiting('/3');
  send('/api/system/ready');
  send('/api/system/health');
  await until(() => inside.length === 4);
});

test('probes take no turn', async () => {
  for (const path of ['/api/system/ready', '/api/system/health']) {
    send(path);
    await until(() => inside.length === 1);
    for (const probe of inside) gate.enter(probe.request);
    finish(path);
  }
  await fill();
});

test('who waits for a body takes no turn, and is let go on at once', async () => {
  await fill();
  await sendWaiting('/3');
  const first = inside.find(({ path }) => path === '/1');
  if (!first) throw new Error('it was let in');
  gate.leave(first.request);
  await until(() => paths().includes('/3'));
  gate.enter(first.request);
  finish('/1');
  await sendWaiting('/4');
  expect(paths()).toEqual(['/2', '/3']);
});

test('a client that goes away gives its turn to the next', async () => {
  const first = send('/1');
  send('/2');
  await until(() => inside.length === 2);
  await sendWaiting('/3');
  first.cut();
  await until(() => paths().includes('/3'));
});

test('a client that went away while it waited is passed over', async () => {
  await fill();
  const connected = once(server, 'connection');
  const waiting = await sendWaiting('/3');
  const [socket]: Socket[] = await connected;
  waiting.cut();
  if (socket) await once(socket, 'close');
  finish('/1');
  send('/4');
  await until(() => paths().includes('/4'));
  expect(paths()).toEqual(['/2', '/4']);
});

test('a client that waited too long is told to come back, not answered late', async () => {
  await fill();
  const waiting = await sendWaiting('/3');
  const begun = performance.now();
  await until(() => performance.now() - begun > waitMs);
  finish('/1');
  expect((await waiting.answer).statusCode).toBe(503);
  send('/4');
  await until(() => paths().includes('/4'));
});
