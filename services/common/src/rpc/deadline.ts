import { AppError, unavailable } from '../errors.ts';
import type { CallContext } from './context.ts';

/** Runs `call` under a deadline: `unavailable` when it passes, and the callee's signal is aborted with it. */
export async function withDeadline<T>(
  context: CallContext,
  timeoutMs: number,
  what: string,
  call: (context: CallContext) => Promise<T>,
): Promise<T> {
  const deadline = new AbortController();
  const { promise: expired, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => {
    deadline.abort();
    reject(unavailable(`${what} did not answer in time.`));
  }, timeoutMs);
  const onAbort = (): void => {
    deadline.abort();
    reject(new AppError('unavailable', 'The request was cancelled.', { members: { retry_after: 1 } }));
  };
  if (context.signal.aborted) onAbort();
  else context.signal.addEventListener('abort', onAbort, { once: true });
  try {
    return await Promise.race([call({ ...context, signal: deadline.signal }), expired]);
  } finally {
    clearTimeout(timer);
    context.signal.removeEventListener('abort', onAbort);
    expired.catch(() => undefined);
  }
}
