import type { AppendableStore } from '../blob-store.ts';
import { toAppError } from '@stowage/common/errors';
import type { ErrorCode } from '@stowage/common/errors';
import { failSpan, inSpan } from '@stowage/common/runtime/spans';
import type { StoreCall, Wrapper } from './wrapped-store.ts';

/** A call of a store that is over. */
export interface MeasuredCall {
  backendId: string;
  operation: keyof AppendableStore;
  outcome: 'ok' | ErrorCode;
  /** To the first byte, for a read. */
  durationMs: number;
}

/** Hears of each call of a store. */
export type CallRecorder = (call: MeasuredCall) => void;

/** Tells `record` of every call to a backend, and traces it. */
export function measure(backendId: string, record: CallRecorder): Wrapper {
  const around = async <R>(call: StoreCall<R>): Promise<R> => {
    const operation = call.name;
    const startedAt = performance.now();
    const attributes = { 'stowage.backend.id': backendId, 'stowage.store.operation': operation };
    return inSpan(`store ${operation}`, { attributes }, async () => {
      try {
        const result = await call.run();
        record({ backendId, operation, outcome: 'ok', durationMs: performance.now() - startedAt });
        return result;
      } catch (error) {
        const outcome = toAppError(error).code;
        failSpan(outcome);
        record({ backendId, operation, outcome, durationMs: performance.now() - startedAt });
        throw error;
      }
    });
  };
  return { around };
}
