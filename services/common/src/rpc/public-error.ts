import { AppError } from '../errors.ts';
import type { Logger } from '../runtime/logger.ts';

/** Logs what only the log may see and gives what a caller in another service sees: code, detail, members. */
export function publicError(error: AppError, where: { logger: Logger; requestId: string; name: string }): AppError {
  if (error.code === 'internal' || (error.code === 'unavailable' && error.cause !== undefined)) {
    const level = error.code === 'internal' ? 'error' : 'warn';
    where.logger[level]({ err: error.cause ?? error, request_id: where.requestId, call: where.name }, error.detail);
  }
  return error.cause === undefined ? error : new AppError(error.code, error.detail, { members: error.members });
}
