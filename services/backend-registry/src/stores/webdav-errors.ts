import { AppError, unavailable } from '@stowage/common/errors';
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

/** The same for all that keeps a connection from standing: what it is would tell of the network behind. */
export const unreachable = 'The backend can not be reached, or broke the connection off.';

/** An error of the connection. Its own cause is left out: it may quote what was sent or received. */
export function connectionError(error: unknown): AppError {
  if (error instanceof AppError) return error;
  const fact = factOf(error);
  if (untrusted.test(fact)) return refusal("The certificate of the backend's server is not trusted.", fact);
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

/** The codes of Node and OpenSSL for a certificate that does not hold. */
const untrusted = /^[A-Z_]*(CERT|ERR_TLS_|UNABLE_TO_VERIFY)[A-Z_]*:/;

function factOf(error: unknown): string {
  if (typeof error !== 'object' || error === null) return 'unknown';
  const code = 'code' in error ? String(error.code) : 'no code';
  return 'message' in error ? `${code}: ${String(error.message)}` : code;
}
