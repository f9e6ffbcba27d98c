import { errorTable } from '@stowage/common/errors';
import type { AppError } from '@stowage/common/errors';

/** An RFC 9457 problem document; some codes add members. */
export interface Problem {
  type: string;
  title: string;
  status: number;
  code: string;
  detail: string;
  request_id: string;
  [member: string]: unknown;
}

/** The problem document of an error: what a client may see and nothing else. */
export function problemOf(error: AppError, requestId: string): Problem {
  const { http, title } = errorTable[error.code];
  return {
    ...error.members,
    type: `urn:stowage:problem:${error.code}`,
    title,
    status: http,
    code: error.code,
    detail: error.detail,
    request_id: requestId,
  };
}

/** The headers that go with a problem: Retry-After, WWW-Authenticate, Allow, Content-Range. */
export function problemHeaders(error: AppError): Record<string, string> {
  const { members } = error;
  const headers: Record<string, string> = {};
  if (error.code === 'unauthenticated') headers['www-authenticate'] = 'Bearer';
  if (error.code === 'invalid_credentials') headers['www-authenticate'] = 'Bearer';
  if (Array.isArray(members['allow'])) headers['allow'] = members['allow'].join(', ');
  if (typeof members['size'] === 'number' && error.code === 'range_not_satisfiable') {
    headers['content-range'] = `bytes */${members['size']}`;
  }
  const retryAfter = members['retry_after'];
  if (typeof retryAfter === 'number') headers['retry-after'] = String(Math.max(1, Math.ceil(retryAfter)));
  else if (error.code === 'unavailable') headers['retry-after'] = '2';
  return headers;
}
