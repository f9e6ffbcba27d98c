import http from 'node:http';
import https from 'node:https';
import { setTimeout } from 'node:timers/promises';
import type { IncomingMessage, OutgoingHttpHeaders } from 'node:http';
import type { StoreAgents } from './s3-config.ts';
import { inCallSpan } from './store-span.ts';
import { abortError, oddAnswer, statusError } from './webdav-errors.ts';
import { Exchange } from './webdav-exchange.ts';
import type { WebdavLimits } from './webdav-limits.ts';

/** For Basic authentication. */
export interface Credentials {
  username: string;
  password: string;
}

/** One call without a stream. */
export interface Call {
  method: string;
  /** As it is sent, from WebdavPaths. */
  path: string;
  headers?: OutgoingHttpHeaders;
  body?: string;
  signal?: AbortSignal;
  /** To the head of the answer; callMs when left out. */
  callMs?: number;
}

const maxHeaderBytes = 16 * 1024;

/** How long a lock is waited for, in milliseconds, one pause after the other. */
const lockedPausesMs = [20, 50, 100, 200, 400, 800, 1_600];

const never = new AbortController().signal;

/** Speaks HTTP with one server: as one user, over the given agents, no redirect followed, nothing tried twice. */
export class WebdavHttp {
  readonly limits: WebdavLimits;
  readonly #origin: URL;
  readonly #authorization: string;
  readonly #agents: StoreAgents;

  constructor(origin: URL, credentials: Credentials, agents: StoreAgents, limits: WebdavLimits) {
    this.#origin = origin;
    this.#agents = agents;
    this.limits = limits;
    const pair = Buffer.from(`${credentials.username}:${credentials.password}`);
    this.#authorization = `Basic ${pair.toString('base64')}`;
  }

  /** Makes the call and has `read` look at the answer, of which nothing must be kept. */
  async call<R>(call: Call, read: (response: IncomingMessage, exchange: Exchange) => Promise<R> | R): Promise<R> {
    const exchange = this.open(call);
    try {
      exchange.request.end(call.body);
      exchange.within(call.callMs ?? this.limits.callMs);
      const response = await exchange.answer;
      exchange.within(this.limits.callMs);
      return await read(response, exchange);
    } finally {
      exchange.release();
    }
  }

  /** The status of a call whose answer says no more. */
  async status(call: Call): Promise<number> {
    return this.call(call, statusOf);
  }

  /** As status, of a call that moves, removes or makes. What is locked is waited for: it is how servers keep two changes of it apart. */
  async statusOfChange(call: Call): Promise<number> {
    let status = await this.status(call);
    for (const pauseMs of lockedPausesMs) {
      if (status !== 423) break;
      await pause(pauseMs, call.signal ?? never);
      status = await this.status(call);
    }
    return status;
  }

  /** Begins a call whose body, answer and deadlines are the caller's. */
  open({ method, path, headers, body, signal }: Call): Exchange {
    const { protocol, hostname, port } = this.#origin;
    const plain = protocol === 'http:';
    const request = (plain ? http : https).request({
      protocol,
      hostname: hostname.replace(/^\[|\]$/g, ''),
      port,
      method,
      path,
      agent: plain ? this.#agents.http : this.#agents.https,
      maxHeaderSize: maxHeaderBytes,
      headers: {
        ...headers,
        authorization: this.#authorization,
        'accept-encoding': 'identity',
        'user-agent': 'stowage',
        ...(body === undefined ? {} : { 'content-length': Buffer.byteLength(body) }),
      },
    });
    const exchange = new Exchange(request, signal ?? never, this.limits.connectMs);
    void inCallSpan(method, { hostname, port }, () => exchange.answer, statusOf).catch(ignore);
    return exchange;
  }
}

/** Whoever made the call is told too. */
function ignore(): void {}

/** The status of an answer. */
export function statusOf(response: IncomingMessage): number {
  return response.statusCode ?? 0;
}

/** Throws what an answer means that is not one of the `good` ones. */
export function expectStatus(call: Call, status: number, ...good: number[]): void {
  if (!good.includes(status)) throw statusError(status, call.method);
}

async function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  await setTimeout(milliseconds, undefined, { signal }).catch(() => {
    throw abortError(signal);
  });
}

/** Hands over the answer piece by piece; throws when it is longer than `maxBytes` or breaks off. */
export async function readAnswer(
  response: IncomingMessage,
  exchange: Exchange,
  maxBytes: number,
  take: (piece: Buffer) => void,
): Promise<void> {
  let seen = 0;
  try {
    for await (const piece of response) {
      if (!(piece instanceof Buffer)) throw oddAnswer('the answer is no bytes');
      seen += piece.length;
      if (seen > maxBytes) throw oddAnswer(`the answer is longer than ${maxBytes} bytes`);
      take(piece);
    }
  } catch (error) {
    throw exchange.errorOf(error);
  }
}
