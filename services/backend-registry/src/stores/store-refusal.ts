import { AppError, unavailable } from '@stowage/common/errors';

/** The cause of an `unavailable` that no waiting mends: wrong keys, a missing right, a bucket that is not there. */
export class StoreRefusal extends Error {
  override readonly name = 'StoreRefusal';
}

/** An `unavailable` for an admin to mend. `detail` is shown to people, `fact` goes to the log: neither holds a secret. */
export function refusal(detail: string, fact: string): AppError {
  return unavailable(detail, new StoreRefusal(fact));
}

/** Whether the backend refused, so that it makes no sense to try again before somebody changed something. */
export function isRefusal(error: unknown): boolean {
  return error instanceof AppError && error.cause instanceof StoreRefusal;
}
