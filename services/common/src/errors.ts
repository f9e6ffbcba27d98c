/**
 * The one table of errors. HTTP status, gRPC status, problem document and OpenAPI page are all made from it:
 * to add an error is to add a line.
 */
export const errorTable = {
  validation_failed: { http: 400, title: 'The request is not valid' },
  unauthenticated: { http: 401, title: 'A valid access token is needed' },
  invalid_credentials: { http: 401, title: 'Wrong user name or password' },
  forbidden: { http: 403, title: 'Your role does not allow this' },
  not_found: { http: 404, title: 'Not found' },
  method_not_allowed: { http: 405, title: 'Method not allowed' },
  request_timeout: { http: 408, title: 'The request took too long to arrive' },
  name_conflict: { http: 409, title: 'The name is taken' },
  state_conflict: { http: 409, title: 'The state does not allow this' },
  cycle: { http: 409, title: 'A directory cannot lie inside itself' },
  backend_in_use: { http: 409, title: 'The backend holds content' },
  backend_delete_refused: { http: 409, title: 'The backend cannot be removed' },
  confirmation_required: { http: 409, title: 'This has to be confirmed' },
  plan_stale: { http: 409, title: 'The plan can no longer be carried out' },
  upload_incomplete: { http: 409, title: 'The upload is not complete' },
  offset_conflict: { http: 409, title: 'The offset is not the current one' },
  parent_missing: { http: 409, title: 'The parent directory is gone' },
  gone: { http: 410, title: 'Gone' },
  precondition_failed: { http: 412, title: 'The version has changed' },
  tus_version_unsupported: { http: 412, title: 'Only tus 1.0.0 is spoken here' },
  payload_too_large: { http: 413, title: 'Too large' },
  uri_too_long: { http: 414, title: 'The address is too long' },
  unsupported_media_type: { http: 415, title: 'The media type is not supported' },
  range_not_satisfiable: { http: 416, title: 'The range lies outside the content' },
  checksum_mismatch: { http: 422, title: 'The checksum does not match' },
  idempotency_key_reused: { http: 422, title: 'The idempotency key was used for another request' },
  unprocessable: { http: 422, title: 'The content cannot be processed' },
  locked: { http: 423, title: 'Locked by another request' },
  rate_limited: { http: 429, title: 'Too many requests' },
  headers_too_large: { http: 431, title: 'The request headers are too large' },
  chunk_checksum_mismatch: { http: 460, title: 'The checksum of the chunk does not match' },
  internal: { http: 500, title: 'Internal error' },
  unavailable: { http: 503, title: 'Temporarily unavailable' },
  insufficient_storage: { http: 507, title: 'Not enough room' },
} as const satisfies Record<string, { http: number; title: string }>;

export type ErrorCode = keyof typeof errorTable;

/** Further members of a problem document; JSON values only. */
export type ErrorMembers = Readonly<Record<string, unknown>>;

/** One fault in a request: where (RFC 6901 pointer into the body, or `?name` of a query parameter) and what. */
export interface FieldError {
  pointer: string;
  detail: string;
}

/** The only error that crosses a boundary between services. `detail` is a sentence for a person and is shown to clients. */
export class AppError extends Error {
  override readonly name = 'AppError';
  readonly code: ErrorCode;
  readonly detail: string;
  readonly members: ErrorMembers;

  constructor(code: ErrorCode, detail: string, options: { members?: ErrorMembers; cause?: unknown } = {}) {
    super(`${code}: ${detail}`, { cause: options.cause });
    this.code = code;
    this.detail = detail;
    this.members = options.members ?? {};
  }
}

export function isErrorCode(value: string): value is ErrorCode {
  return Object.hasOwn(errorTable, value);
}

/** A 400 with one pointer a fault. */
export function validationError(errors: FieldError[]): AppError {
  const detail = errors.map(({ pointer, detail }) => (pointer === '' ? detail : `${pointer}: ${detail}`)).join('; ');
  return new AppError('validation_failed', detail, { members: { errors } });
}

/** A 503 whose `retry_after` (seconds) the gateway also sends as Retry-After. */
export function unavailable(detail: string, cause?: unknown, retryAfterSeconds = 2): AppError {
  return new AppError('unavailable', detail, { members: { retry_after: retryAfterSeconds }, cause });
}

/** The only catch-all: what has no name yet is `internal`, with its cause kept for the log and hidden from clients. */
export function toAppError(error: unknown): AppError {
  if (error instanceof AppError) return error;
  return new AppError('internal', 'Something went wrong on our side; quote the request id when you report it.', {
    cause: error,
  });
}
