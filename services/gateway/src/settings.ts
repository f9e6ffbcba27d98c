import { isIP } from 'node:net';
import {
  byteSize,
  byteSizeWithin,
  integer,
  list,
  origin,
  positiveDuration,
  setting,
  text,
  timeout,
} from '@stowage/common/runtime/settings';
import type { Values } from '@stowage/common/runtime/settings';
import { usernamePattern } from './auth/username.ts';

/** The settings of the gateway. */
export const gatewaySettings = {
  host: setting('STOWAGE_HOST', 'The address that the public port is bound to.', text, { fallback: '127.0.0.1' }),
  port: setting('STOWAGE_PORT', 'The public port.', integer(0, 65_535), { fallback: '8080' }),
  publicUrl: setting<string | null>(
    'STOWAGE_PUBLIC_URL',
    'How clients reach the service; makes upload addresses absolute.',
    origin,
    {
      absent: null,
    },
  ),
  trustedProxies: setting(
    'STOWAGE_TRUSTED_PROXIES',
    'Networks (a.b.c.d/n, comma-separated) whose X-Forwarded-For is believed.',
    list(network),
    { absent: [] },
  ),
  corsOrigins: setting(
    'STOWAGE_CORS_ORIGINS',
    'Exact origins, comma-separated, that browsers may call from.',
    list(origin),
    {
      absent: [],
    },
  ),
  adminUsername: setting('STOWAGE_ADMIN_USERNAME', 'The first admin’s user name.', username, { fallback: 'admin' }),
  adminPassword: setting<string | null>(
    'STOWAGE_ADMIN_PASSWORD',
    'The first admin’s password, 12 to 256 characters; where none is set, a random one is printed once.',
    password,
    { absent: null, secret: true },
  ),
  sessionTtlMs: setting('STOWAGE_SESSION_TTL', 'How long a token lives after its last use.', positiveDuration, {
    fallback: '12h',
  }),
  sessionMaxMs: setting('STOWAGE_SESSION_MAX', 'How long a token lives at most.', positiveDuration, { fallback: '7d' }),
  loginWindowMs: setting('STOWAGE_LOGIN_WINDOW', 'The time over which failed logins are counted.', positiveDuration, {
    fallback: '15m',
  }),
  loginFailuresPerUser: setting(
    'STOWAGE_LOGIN_FAILURES_PER_USER',
    'Failed logins per user name and address.',
    integer(1, 1000),
    {
      fallback: '10',
    },
  ),
  loginFailuresPerAddress: setting(
    'STOWAGE_LOGIN_FAILURES_PER_ADDRESS',
    'Failed logins per address.',
    integer(1, 100_000),
    {
      fallback: '100',
    },
  ),
  requestsPerMinute: setting(
    'STOWAGE_REQUESTS_PER_MINUTE',
    'Requests per user and minute in this process; 0 is no limit.',
    integer(0, 1_000_000),
    {
      fallback: '0',
    },
  ),
  requestsAtOnce: setting(
    'STOWAGE_REQUESTS_AT_ONCE',
    'Requests that this process works on at a time; content that flows does not count.',
    integer(1, 10_000),
    { fallback: '64' },
  ),
  requestsWaiting: setting(
    'STOWAGE_REQUESTS_WAITING',
    'Requests that may wait for their turn; more are answered with 503.',
    integer(0, 100_000),
    { fallback: '500' },
  ),
  maxUploadBytes: setting('STOWAGE_MAX_UPLOAD_BYTES', 'The longest upload.', byteSize, { fallback: '1TiB' }),
  jsonBodyLimit: setting('STOWAGE_JSON_BODY_LIMIT', 'The longest JSON body.', byteSizeWithin(1, 2 ** 30), {
    fallback: '1MiB',
  }),
  jsonTimeoutMs: setting('STOWAGE_JSON_TIMEOUT', 'How long a JSON request may take to arrive.', timeout, {
    fallback: '30s',
  }),
  headersTimeoutMs: setting('STOWAGE_HEADERS_TIMEOUT', 'How long request headers may take to arrive.', timeout, {
    fallback: '10s',
  }),
  idleTimeoutMs: setting('STOWAGE_IDLE_TIMEOUT', 'How long content may flow without a byte.', timeout, {
    fallback: '60s',
  }),
  previewCacheBytes: setting('STOWAGE_PREVIEW_CACHE', 'Memory for previews.', byteSize, { fallback: '32MiB' }),
};

export type GatewaySettings = Values<typeof gatewaySettings>;

function network(text: string): string {
  const [address = '', bits, ...rest] = text.split('/');
  const version = isIP(address);
  const right = bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (version === 4 ? 32 : 128));
  if (version === 0 || rest.length > 0 || !right)
    throw new Error(`must hold networks such as 10.0.0.0/8, not "${text}"`);
  if (Number(bits) === 0)
    throw new Error(`must not hold "${text}", which is everyone: a client could then tell any address as its own`);
  return text;
}

function username(text: string): string {
  if (!new RegExp(usernamePattern).test(text))
    throw new Error('must be a user name: letters, digits and ._@-, at most 64');
  return text;
}

function password(text: string): string {
  const length = [...text].length;
  if (length < 12 || length > 256) throw new Error('must have 12 to 256 characters');
  return text;
}
