import type { FastifyRateLimitStore } from '@fastify/rate-limit';
import { LRUCache } from 'lru-cache';

const keysMax = 5_000;

interface Count {
  requests: number;
  /** Of the clock that nobody sets, in ms. */
  since: number;
}

type Callback = Parameters<FastifyRateLimitStore['incr']>[1];

/**
 * Counts requests by key, in this process. What it tells is of one request alone. The plugin's own store hands out what it
 * counts with, and the plugin looks at it a moment later: of a burst, all were judged by the count of the last.
 */
export class RequestCounts implements FastifyRateLimitStore {
  readonly #counts = new LRUCache<string, Count>({ max: keysMax });

  incr(key: string, callback: Callback, timeWindow = 60_000): void {
    const now = performance.now();
    const known = this.#counts.get(key);
    const isOver = !known || known.since + timeWindow <= now;
    const count = isOver ? { requests: 1, since: now } : { requests: known.requests + 1, since: known.since };
    this.#counts.set(key, count);
    callback(null, { current: count.requests, ttl: Math.max(0, Math.round(count.since + timeWindow - now)) });
  }

  child(): this {
    return this;
  }
}
