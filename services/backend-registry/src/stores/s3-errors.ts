import { AppError, unavailable } from '@stowage/common/errors';
import { isUntrusted, unreachable, untrustedDetail } from './connection-faults.ts';
import { refusal } from './store-refusal.ts';

/** What is known of a failed call. Nothing else is kept: messages and members of the SDK's errors bear keys and signatures. */
interface S3Failure {
  /** 0 when there was no answer. */
  status: number;
  name: string;
}

/** What an S3 server calls a blob that is not there. */
export function isMissing(error: unknown): boolean {
  const { status, name } = failureOf(error);
  return name === 'NoSuchKey' || (status === 404 && name !== 'NoSuchBucket' && name !== 'NoSuchUpload');
}

/** Whether the server answered with one of these statuses. */
export function hasStatus(error: unknown, ...statuses: number[]): boolean {
  return statuses.includes(failureOf(error).status);
}

/** What callers see of an error of the SDK: a sentence for an admin. An AppError anywhere in it is the error itself. */
export function s3Error(error: unknown): AppError {
  const own = appErrorIn(error);
  if (own) return own;
  const failure = failureOf(error);
  const fact = `S3: ${failure.name}${failure.status > 0 ? ` (${failure.status})` : ''}`;
  if (isFull(failure)) {
    const full = 'The backend is full: free some space or use another backend.';
    return new AppError('insufficient_storage', full, { cause: new Error(fact) });
  }
  const refused = refusalOf(failure);
  return refused === null ? unavailable(troubleOf(failure), new Error(fact)) : refusal(refused, fact);
}

/** What an admin has to mend; null for what may mend itself. */
function refusalOf({ status, name }: S3Failure): string | null {
  if (status === 0 && isUntrusted(name)) return untrustedDetail;
  if (name === 'NoSuchBucket') return 'The bucket of this backend does not exist.';
  if (wrongKeys.has(name)) return 'The server refuses the access key or the secret key of this backend.';
  if (wrongTokens.has(name)) return 'The session token of this backend is not valid (any more).';
  if (name === 'RequestTimeTooSkewed') return 'The clocks of this machine and of the backend are too far apart.';
  if (status === 401 || status === 403) return 'The server does not permit this with the keys of this backend.';
  if (status >= 300 && status < 400) return 'The bucket lies in another region or at another endpoint.';
  return null;
}

function troubleOf({ status }: S3Failure): string {
  return status > 0 ? 'The backend can not be used just now.' : unreachable;
}

const wrongTokens = new Set(['ExpiredToken', 'InvalidToken']);
const wrongKeys = new Set([
  'InvalidAccessKeyId',
  'SignatureDoesNotMatch',
  'InvalidSecurity',
  'AuthorizationHeaderMalformed',
]);

function isFull({ status, name }: S3Failure): boolean {
  return status === 507 || /StorageFull|QuotaExceeded|InsufficientStorage|NoSpace/i.test(name);
}

function appErrorIn(error: unknown): AppError | null {
  let at = error;
  for (let depth = 0; depth < 5 && typeof at === 'object' && at !== null; depth += 1) {
    if (at instanceof AppError) return at;
    at = 'cause' in at ? at.cause : null;
  }
  return null;
}

/** Told by their shape: errors of the network are of another realm than a test's `Error`. */
function failureOf(error: unknown): S3Failure {
  if (typeof error !== 'object' || error === null) return { status: 0, name: 'unknown' };
  const metadata: unknown = '$metadata' in error ? error.$metadata : null;
  const status =
    typeof metadata === 'object' && metadata !== null && 'httpStatusCode' in metadata ? metadata.httpStatusCode : 0;
  const code = 'code' in error && typeof error.code === 'string' ? error.code : null;
  const name = 'name' in error && typeof error.name === 'string' ? error.name : 'unknown';
  if (typeof status === 'number' && status > 0) return { status, name: serverName(code ?? name) };
  return { status: 0, name: plain(code ?? name) };
}

/** A name that the server chose, which may give back a key in it: codes of S3 are letters in camel case, keys are not. */
function serverName(name: string): string {
  return /^[A-Z]+[a-z][A-Za-z]{0,58}$/.test(name) ? name : 'odd code';
}

/** A name that the runtime chose: short, and of letters. */
function plain(name: string): string {
  return name.replace(/[^A-Za-z0-9_.]/g, '').slice(0, 60);
}
