import { AppError, unavailable } from '@stowage/common/errors';
import { isUntrusted, unreachable, untrustedDetail } from './connection-faults.ts';
import { refusal } from './store-refusal.ts';

/** What an answer with this status means to whoever asked; `call` is for the log. Never holds what the server said. */
export function statusError(status: number, call: string): AppError {
  const fact = `WebDAV: ${call} was answered with ${status}`;
  if (status === 507 || status === 413) {
    const full = 'The backend is full, or takes no content of this size.';
    return new AppError('insufficient_storage', full, { cause: new Error(fact) });
  }
  const refused = refusalOf(status);
  return refused === null ? unavailable(troubleOf(status), new Error(fact)) : refusal(refused, fact);
}

/** An error of the connection. Its own cause is left out: it may quote what was sent or received. */
export function connectionError(error: unknown): AppError {
  if (error instanceof AppError) return error;
  const { code, fact } = factOf(error);
  if (isUntrusted(code)) return refusal(untrustedDetail, fact);
  return unavailable(unreachable, new Error(fact));
}

/** An answer that is not what the protocol demands. `fault` is for the log. */
export function oddAnswer(fault: string): AppError {
  return unavailable('The backend gave an answer that makes no sense.', new Error(fault));
}

/** What an aborted signal says, as an AppError. */
export function abortError(signal: AbortSignal): AppError {
  const reason: unknown = signal.reason;
  return reason instanceof AppError ? reason : unavailable('The request was cancelled.');
}

/** What an admin has to mend; null for what may mend itself. */
function refusalOf(status: number): string | null {
  if (status === 401) return 'The server refuses the user name or the password of this backend.';
  if (status === 403)
    return 'The server does not permit this to the user of this backend: check its rights in root_path.';
  if (status >= 300 && status < 400) return 'The server redirects, which is never followed: set url to where it leads.';
  return null;
}

function troubleOf(status: number): string {
  if (status === 423) return 'This is locked on the backend by another client.';
  return 'The backend can not be used just now.';
}

function factOf(error: unknown): { code: string; fact: string } {
  if (typeof error !== 'object' || error === null) return { code: '', fact: 'unknown' };
  const code = 'code' in error ? String(error.code) : 'no code';
  return { code, fact: 'message' in error ? `${code}: ${String(error.message)}` : code };
}
