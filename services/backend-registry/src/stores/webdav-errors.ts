import { AppError, unavailable } from '@stowage/common/errors';

/** What an answer with this status means to whoever asked; `call` is for the log. Never holds what the server said. */
export function statusError(status: number, call: string): AppError {
  const cause = new Error(`${call} was answered with ${status}`);
  if (status === 507 || status === 413) {
    return new AppError('insufficient_storage', 'The WebDAV server has no room for this content.', { cause });
  }
  return unavailable(sentenceFor(status), cause);
}

/** An error of the connection. Its own cause is left out: it may quote what was sent or received. */
export function connectionError(error: unknown): AppError {
  if (error instanceof AppError) return error;
  return unavailable('The WebDAV server can not be reached, or broke the connection off.', plainCause(error));
}

/** An answer that is not what the protocol demands. `fault` is for the log. */
export function oddAnswer(fault: string): AppError {
  return unavailable('The WebDAV server gave an answer that makes no sense.', new Error(fault));
}

/** What an aborted signal says, as an AppError. */
export function abortError(signal: AbortSignal): AppError {
  const reason: unknown = signal.reason;
  return reason instanceof AppError ? reason : unavailable('The request was cancelled.');
}

function sentenceFor(status: number): string {
  if (status === 401) return 'The WebDAV server refuses the user name or the password of this backend.';
  if (status === 403) return 'The WebDAV server does not permit this: check what its user may do in root_path.';
  if (status === 423) return 'The WebDAV server says that this is locked by another client.';
  if (status >= 300 && status < 400) {
    return 'The WebDAV server redirects, which is never followed: set url to where it leads.';
  }
  return `The WebDAV server can not do this just now (it answered ${status}).`;
}

function plainCause(error: unknown): Error {
  if (typeof error !== 'object' || error === null) return new Error('unknown');
  const code = 'code' in error ? String(error.code) : 'no code';
  return new Error('message' in error ? `${code}: ${String(error.message)}` : code);
}
