import type { AppendableStore, BlobStore } from '../blob-store.ts';
import { CircuitBreaker } from './circuit-breaker.ts';
import type { BreakerOptions } from './circuit-breaker.ts';
import { ConcurrencyLimit } from './concurrency-limit.ts';
import type { LimitOptions } from './concurrency-limit.ts';
import { retry } from './retry.ts';
import type { RetryOptions } from './retry.ts';
import { WrappedAppendableStore } from './wrapped-appendable-store.ts';
import { WrappedStore } from './wrapped-store.ts';
import type { Wrapper } from './wrapped-store.ts';

export interface GuardOptions {
  retry: RetryOptions;
  limit: LimitOptions;
  breaker: BreakerOptions;
}

export const usualGuard: GuardOptions = {
  retry: { attempts: 3, baseMs: 200, capMs: 2_000 },
  limit: { most: 32, waitMs: 10_000 },
  breaker: { failures: 5, openMs: 10_000, patienceMs: 2_000 },
};

/**
 * A store over the network, for everybody's use: its failures are retried, it gets so many calls at once, is left alone
 * while it is down, and what it did is measured. The order, from the outside in: who waits to retry holds no place of the
 * limit, waiting for a place is no failure of the backend, and only calls that were made are measured.
 */
export function guardStore(store: BlobStore, measured: Wrapper, options: GuardOptions = usualGuard): BlobStore {
  return new WrappedStore(store, guards(measured, options));
}

/** As guardStore, for a store that content can grow in. */
export function guardAppendableStore(
  store: AppendableStore,
  measured: Wrapper,
  options: GuardOptions = usualGuard,
): AppendableStore {
  return new WrappedAppendableStore(store, guards(measured, options));
}

function guards(measured: Wrapper, options: GuardOptions): Wrapper[] {
  return [retry(options.retry), new ConcurrencyLimit(options.limit), new CircuitBreaker(options.breaker), measured];
}
