import { expect } from '@jest/globals';
import type { Answer, Json } from './client.ts';

/** What must never reach a client: stack frames, source files, paths on disk, SQL, drivers' words, our tokens. */
const internal =
  /node_modules|\.ts\b|\n\s+at |\bat [\w.<>]+ \(|\/(work|tmp|home|var|usr)\/|\bselect\b.+\bfrom\b|\binsert into\b|\bdelete from\b|pg_|relation "|syntax error|ECONN|EPIPE|UNAVAILABLE:|stw_[\w-]{8}|\$argon2/i;

/** Expects a whole RFC 9457 document of `code` with nothing internal in it; gives its JSON. */
export function expectProblem(answer: Answer, status: number, code: string): Json {
  const { json, headers } = answer;
  expect({ http: answer.status, ...json }).toMatchObject({
    http: status,
    type: `urn:stowage:problem:${code}`,
    title: expect.stringMatching(/^[A-Z].+/),
    status,
    code,
    detail: expect.stringMatching(/\S/),
    request_id: headers.get('x-request-id'),
  });
  expect(headers.get('content-type')).toMatch(/^application\/problem\+json(;|$)/);
  expectNothingInternal(answer.bytes.toString());
  return json;
}

/** The pointers of a validation problem. */
export function pointersOf(problem: Json): string[] {
  const errors: Json[] = problem['errors'] ?? [];
  return errors.map((error) => error['pointer']);
}

export function expectNothingInternal(text: string): void {
  expect(text).not.toMatch(internal);
}

/** Expects a Retry-After of whole seconds, at least one; gives it. */
export function expectRetryAfter(answer: Answer): number {
  const header = answer.headers.get('retry-after');
  expect(header).toMatch(/^[1-9]\d*$/);
  return Number(header);
}
