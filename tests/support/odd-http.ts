import { request } from 'node:http';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { hostAndPort } from './host-and-port.ts';
import type { Answer, Json } from './client.ts';

export interface OddRequest {
  method?: string;
  path: string;
  /** As they are, repeated ones too; `Host` is added where there is none. */
  headers?: [name: string, value: string][];
  body?: string | Buffer;
  /** The address to come from: on Linux any of 127.0.0.0/8. */
  from?: string;
}

/** One request that `fetch` would not send: with repeated headers, another Host, from another loopback address. */
export function sendOdd(url: string, options: OddRequest): Promise<Answer> {
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  const call = request(
    {
      ...hostAndPort(url),
      method: options.method ?? 'GET',
      path: options.path,
      headers: headersOf(url, options).flat(),
      agent: false,
      ...(options.from ? { localAddress: options.from } : {}),
    },
    (response) => {
      const pieces: Buffer[] = [];
      response.on('data', (piece: Buffer) => pieces.push(piece));
      response.once('error', reject);
      response.once('end', () => {
        const lines = response.rawHeaders;
        const pairs = lines.flatMap((name, i): [string, string][] => (i % 2 === 0 ? [[name, lines[i + 1] ?? '']] : []));
        resolve(answerOf(response.statusCode ?? 0, pairs, Buffer.concat(pieces)));
      });
    },
  );
  call.once('error', reject);
  call.end(options.body);
  return promise;
}

function headersOf(url: string, { headers = [], body = '' }: OddRequest): [string, string][] {
  const all = [...headers];
  const has = (name: string): boolean => all.some(([key]) => key.toLowerCase() === name);
  if (!has('host')) all.unshift(['Host', new URL(url).host]);
  if (!has('content-length')) all.push(['Content-Length', String(Buffer.byteLength(body))]);
  return all;
}

/** A JSON POST from another address. */
export function postFrom(
  url: string,
  path: string,
  body: unknown,
  from: string,
  headers: [string, string][] = [],
): Promise<Answer> {
  const all: [string, string][] = [['Content-Type', 'application/json'], ...headers];
  return sendOdd(url, { method: 'POST', path, headers: all, body: JSON.stringify(body), from });
}

function answerOf(status: number, pairs: readonly (readonly [string, string])[], bytes: Buffer): Answer {
  const headers = new Headers();
  for (const [name, value] of pairs) headers.append(name, value);
  const isJson = headers.get('content-type')?.includes('json') ?? false;
  const json: Json = isJson && bytes.length > 0 ? JSON.parse(bytes.toString()) : {};
  return { status, headers, json, bytes };
}

/** What came back on one connection. */
export interface Exchange {
  text: string;
  /** The status of each answer, in order. */
  statuses: number[];
  /** Whether the server closed the connection within the time. */
  closed: boolean;
  ms: number;
}

/** Sends `bytes` as they are and listens until the server closes the connection, at most `limitMs`. */
export function exchange(url: string, bytes: string | Buffer, limitMs = 5_000): Promise<Exchange> {
  return converse(url, async (socket) => void socket.write(bytes), limitMs);
}

/** As `exchange`, for what is sent piece by piece. A write after the server closed is no error. */
export async function converse(
  url: string,
  send: (socket: Socket) => Promise<void>,
  limitMs = 5_000,
): Promise<Exchange> {
  const start = performance.now();
  const socket = connect(hostAndPort(url));
  const pieces: Buffer[] = [];
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const timer = setTimeout(() => resolve(false), limitMs);
  socket.on('data', (piece: Buffer) => pieces.push(piece));
  socket
    .on('error', () => resolve(true))
    .once('end', () => resolve(true))
    .once('close', () => resolve(true));
  socket.once('connect', () => void send(socket).catch(() => undefined));
  const closed = await promise;
  clearTimeout(timer);
  socket.destroy();
  const text = Buffer.concat(pieces).toString('latin1');
  const statuses = [...text.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map((match) => Number(match[1]));
  return { text, statuses, closed, ms: performance.now() - start };
}

/** The first answer of an exchange, taken apart. */
export function firstAnswer({ text }: Exchange): Answer {
  const headEnd = text.indexOf('\r\n\r\n');
  const [statusLine = '', ...lines] = text.slice(0, headEnd).split('\r\n');
  const pairs = lines.map((line): [string, string] => [
    line.slice(0, line.indexOf(':')),
    line.slice(line.indexOf(':') + 1).trim(),
  ]);
  return answerOf(Number(statusLine.split(' ')[1]), pairs, Buffer.from(text.slice(headEnd + 4), 'latin1'));
}
