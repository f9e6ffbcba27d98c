import { unavailable } from '@stowage/common/errors';
import type { FastifyInstance } from 'fastify';
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { recordRefusal } from './request-metrics.ts';
import { problemHeaders, problemOf } from './problem.ts';
import { isTus, requestIdOf, strictPolicy } from './server-guards.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Takes its time (content, hashing, waiting) under a limit of its own: once let in, it takes nobody's turn. */
    unhurried?: boolean;
  }
}

/** How many requests are worked on at a time, and how many more may wait for their turn, for how long. */
export interface GateLimits {
  atOnce: number;
  waiting: number;
  waitMs: number;
}

/**
 * Lets so many requests be worked on at a time as keep the process busy; some wait, and the rest are told at once to come
 * back, before anything is spent on them. What only waits for a body to arrive takes no turn: slow clients must not keep
 * out the quick ones.
 */
export class RequestGate {
  readonly #limits: GateLimits;
  readonly #waiting: (() => void)[] = [];
  /** Those that were let in and are not answered: true while they take a turn. */
  readonly #inside = new WeakMap<IncomingMessage, boolean>();
  #count = 0;

  constructor(limits: GateLimits) {
    this.#limits = limits;
  }

  /** A listener that puts the gate before `handler`. Probes pass: they tell how the process is. */
  guard(handler: RequestListener): RequestListener {
    return (request, response) => {
      if (isProbe(request)) handler(request, response);
      else if (this.#count < this.#limits.atOnce) this.#start(handler, request, response);
      else if (this.#waiting.length < this.#limits.waiting) this.#wait(handler, request, response);
      else refuse(request, response);
    };
  }

  /** Gives the turn to another while the request's body arrives. */
  leave(request: IncomingMessage): void {
    if (!this.#inside.get(request)) return;
    this.#inside.set(request, false);
    this.#count -= 1;
    while (this.#count < this.#limits.atOnce) {
      const next = this.#waiting.shift();
      if (!next) return;
      next();
    }
  }

  /** Counts the request again; it was let in already, so it need not wait. */
  enter(request: IncomingMessage): void {
    if (this.#inside.get(request) !== false) return;
    this.#inside.set(request, true);
    this.#count += 1;
  }

  /** Until it is its turn, its time is over, or its client is gone. */
  #wait(handler: RequestListener, request: IncomingMessage, response: ServerResponse): void {
    const end = (): void => {
      clearTimeout(timer);
      response.off('close', end);
      const place = this.#waiting.indexOf(begin);
      if (place >= 0) this.#waiting.splice(place, 1);
    };
    const begin = (): void => {
      end();
      this.#start(handler, request, response);
    };
    const timer = setTimeout(() => {
      end();
      refuse(request, response);
    }, this.#limits.waitMs);
    response.once('close', end);
    this.#waiting.push(begin);
  }

  #start(handler: RequestListener, request: IncomingMessage, response: ServerResponse): void {
    // Its client may have gone while it waited.
    if (response.destroyed) return;
    this.#inside.set(request, true);
    this.#count += 1;
    response.once('close', () => {
      this.leave(request);
      this.#inside.delete(request);
    });
    handler(request, response);
  }
}

/** Tells the gate when a request waits for its body, and when it is worked on. */
export function addGate(app: FastifyInstance, gate: RequestGate): void {
  app.addHook('preParsing', async (request) => gate.leave(request.raw));
  app.addHook('preHandler', async (request) => {
    const { unhurried, waits } = request.routeOptions.config;
    if (!unhurried && !waits) gate.enter(request.raw);
  });
}

function isProbe({ url }: IncomingMessage): boolean {
  return url === '/api/system/health' || url === '/api/system/ready';
}

const retrySeconds = 1;
/** A body up to here is dropped and the connection kept; a longer one is not waited for. */
const droppedBytes = 65_536;

function refuse(request: IncomingMessage, response: ServerResponse): void {
  if (response.destroyed) return;
  recordRefusal();
  const error = unavailable(
    'More requests arrive than can be answered: try again in a moment.',
    undefined,
    retrySeconds,
  );
  const requestId = requestIdOf(request);
  const problem = problemOf(error, requestId);
  const body = JSON.stringify(problem);
  const { 'content-length': length = '0', 'transfer-encoding': encoding } = request.headers;
  const isLong = encoding !== undefined || !(Number(length) <= droppedBytes);
  response.writeHead(problem.status, {
    ...problemHeaders(error),
    ...(isTus(request.url ?? '') ? { 'tus-resumable': '1.0.0' } : {}),
    ...(isLong ? { connection: 'close' } : {}),
    'content-type': 'application/problem+json',
    'content-length': Buffer.byteLength(body),
    'cache-control': 'private, no-store',
    'x-content-type-options': 'nosniff',
    'content-security-policy': strictPolicy,
    'x-request-id': requestId,
  });
  response.end(body);
}
