import { expect } from '@jest/globals';
import { request } from 'node:http';
import type { Client } from './client.ts';

/** What arrived of an answer, however it ended. */
export interface Received {
  status: number;
  headers: Headers;
  bytes: Buffer;
  /** False where the connection broke before all of it was there. */
  whole: boolean;
}

/** A GET that keeps what came before the connection broke, where `fetch` throws all away. */
export function receive(client: Client, path: string, headers: Record<string, string> = {}): Promise<Received> {
  const { promise, resolve, reject } = Promise.withResolvers<Received>();
  const all = { ...headers, authorization: `Bearer ${client.token ?? ''}` };
  const call = request(`${client.url}${path}`, { headers: all, agent: false }, (response) => {
    const pieces: Buffer[] = [];
    response.on('data', (piece: Buffer) => pieces.push(piece));
    // A break shows in `complete`.
    response.on('error', () => undefined);
    response.once('close', () => {
      const received = new Headers();
      for (const [name, value] of Object.entries(response.headers)) received.set(name, String(value));
      resolve({
        status: response.statusCode ?? 0,
        headers: received,
        bytes: Buffer.concat(pieces),
        whole: response.complete,
      });
    });
  });
  call.once('error', reject);
  call.end();
  return promise;
}

/** A Content-Disposition, taken apart. */
export interface Disposition {
  type: string;
  /** What the client shows: `filename*` where there is one. */
  filename: string;
  /** The plain `filename`. */
  fallback: string;
}

const token = "[!#$%&'*+.^_`|~0-9A-Za-z-]+";
const quoted = '"(?:[^"\\\\]|\\\\.)*"';

/** Reads the header strictly by RFC 6266 and RFC 8187; throws for anything else. */
export function parseDisposition(header: string | null): Disposition {
  const text = header ?? '';
  if (!/^[\x20-\x7e]+$/.test(text)) throw new Error(`not plain ASCII: ${JSON.stringify(text)}`);
  const whole = new RegExp(`^(${token})((?:\\s*;\\s*${token}=(?:${quoted}|${token}))*)$`).exec(text);
  if (!whole) throw new Error(`not a Content-Disposition: ${text}`);
  const parameters = new Map<string, string>();
  for (const [, name = '', value = ''] of (whole[2] ?? '').matchAll(
    new RegExp(`;\\s*(${token})=(${quoted}|${token})`, 'g'),
  )) {
    if (parameters.has(name.toLowerCase())) throw new Error(`${name} comes twice: ${text}`);
    parameters.set(name.toLowerCase(), value);
  }
  const fallback = unquote(parameters.get('filename') ?? '');
  const extended = parameters.get('filename*');
  return {
    type: (whole[1] ?? '').toLowerCase(),
    filename: extended === undefined ? fallback : decodeExtended(extended),
    fallback,
  };
}

function unquote(value: string): string {
  return value.startsWith('"') ? value.slice(1, -1).replaceAll(/\\(.)/g, '$1') : value;
}

function decodeExtended(value: string): string {
  const match = /^UTF-8''((?:%[0-9A-F]{2}|[!#$&+.^_`|~0-9A-Za-z-])*)$/i.exec(value);
  if (!match) throw new Error(`not an extended value: ${value}`);
  return decodeURIComponent(match[1] ?? '');
}

/** The directives of the Content-Security-Policy. */
export function policyOf(headers: Headers): string[] {
  return (headers.get('content-security-policy') ?? '').split(';').map((directive) => directive.trim());
}

/** Expects the headers that every answer with a file's bytes has. */
export function expectContentHeaders(headers: Headers, file: { sha256: string; mediaType: string }): void {
  const digest = Buffer.from(file.sha256, 'hex').toString('base64');
  expect(Object.fromEntries(headers)).toMatchObject({
    'accept-ranges': 'bytes',
    'x-content-type-options': 'nosniff',
    'repr-digest': `sha-256=:${digest}:`,
    etag: expect.stringMatching(/^"[\x21\x23-\x7e]+"$/),
    'last-modified': expect.stringMatching(
      /^(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT$/,
    ),
    'cache-control': expect.stringMatching(/\bprivate\b/),
    'cross-origin-resource-policy': 'same-origin',
    'x-frame-options': 'SAMEORIGIN',
  });
  const [type, ...parameters] = (headers.get('content-type') ?? '').split(/;\s*/);
  expect(type).toBe(file.mediaType);
  expect(parameters).toEqual(file.mediaType.startsWith('text/') ? ['charset=utf-8'] : []);
  expect(policyOf(headers)).toEqual(expect.arrayContaining(["default-src 'none'", "frame-ancestors 'self'"]));
}
