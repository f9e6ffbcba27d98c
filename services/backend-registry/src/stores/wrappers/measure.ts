import type { AppendableStore } from '../blob-store.ts';
import { toAppError } from '@stowage/common/errors';
import type { ErrorCode } from '@stowage/common/errors';
import type { StoreCall, Wrapper } from './wrapped-store.ts';

/** Hears of each call of a store: how it ended, and how long it took in milliseconds (to the first byte, for a read). */
export type CallRecorder = (name: keyof AppendableStore, outcome: 'ok' | ErrorCode, durationMs: number) => void;

/** Tells `record` of every call. */
export function measure(record: CallRecorder): Wrapper {
  const around = async <R>(call: StoreCall<R>): Promise<R> => {
    const startedAt = performance.now();
    try {
      const result = await call.run();
      record(call.name, 'ok', performance.now() - startedAt);
      return result;
    } catch (error) {
      record(call.name, toAppError(error).code, performance.now() - startedAt);
      throw error;
    }
  };
  return { around };
}
