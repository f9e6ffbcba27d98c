import type { NatsCredentials } from './nats-credentials.ts';

/** Where NATS is, and how to be let in. Credentials are apart from the addresses, which may be told in logs. */
export interface NatsAddress {
  /** Each `host:port`. */
  servers: string[];
  user: string | null;
  password: string | null;
  /** Where the address names a user without a password. */
  token: string | null;
  tls: boolean;
  /** In place of user, password and token. */
  credentials?: NatsCredentials;
  /** PEM of who may vouch for the server, in place of those that the system trusts; makes TLS a must. */
  ca?: string;
}

const schemes = ['nats:', 'tls:'];

/**
 * One or more addresses, separated by commas, as `nats://user:password@host:4222`; `tls://` where TLS is a must. Throws
 * without telling the text: it holds a password.
 */
export function natsAddress(text: string): NatsAddress {
  const urls = text.split(',').map((part) => parse(part.trim()));
  const named = urls.find((url) => url.username !== '');
  const user = named ? decode(named.username) : null;
  const password = named && named.password !== '' ? decode(named.password) : null;
  return {
    servers: urls.map((url) => `${url.hostname}:${url.port === '' ? '4222' : url.port}`),
    user: password === null ? null : user,
    password,
    token: password === null ? user : null,
    tls: urls.some((url) => url.protocol === 'tls:'),
  };
}

const wanted = 'must be like nats://user:password@host:4222, several separated by commas';

function parse(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (!url || !schemes.includes(url.protocol) || url.hostname === '' || !/^\/?$/.test(url.pathname + url.search))
    throw new Error(wanted);
  return url;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new Error(wanted);
  }
}
