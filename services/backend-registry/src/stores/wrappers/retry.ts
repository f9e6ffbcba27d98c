import { setTimeout } from 'node:timers/promises';
import { AppError } from '@stowage/common/errors';
import { isRefusal } from '../store-refusal.ts';
import { isOpenCircuit } from './circuit-breaker.ts';
import type { StoreCall, Wrapper } from './wrapped-store.ts';

export interface RetryOptions {
  /** How often a call is made at most. */
  attempts: number;
  /** The longest wait before the second attempt, in milliseconds; doubles with each further one. */
  baseMs: number;
  /** The longest wait of all, in milliseconds. */
  capMs: number;
}

/**
 * Makes a repeatable call that was `unavailable` again, after a wait of random length (full jitter), so that many who failed
 * together don't come back together. What was refused is not asked again.
 */
export function retry(options: RetryOptions, random: () => number = Math.random): Wrapper {
  const around = async <R>(call: StoreCall<R>): Promise<R> => {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await call.run();
      } catch (error) {
        if (!call.repeatable || attempt >= options.attempts || call.callersFault() || !mayPass(error)) throw error;
        const longest = Math.min(options.capMs, options.baseMs * 2 ** (attempt - 1));
        await setTimeout(random() * longest, null, { signal: call.signal }).catch(() => {
          throw error;
        });
      }
    }
  };
  return { around };
}

function mayPass(error: unknown): boolean {
  return error instanceof AppError && error.code === 'unavailable' && !isRefusal(error) && !isOpenCircuit(error);
}
