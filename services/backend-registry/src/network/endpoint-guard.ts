import { lookup as systemLookup } from 'node:dns';
import type { LookupAddress } from 'node:dns';
import http from 'node:http';
import https from 'node:https';
import { BlockList, isIP, isIPv6 } from 'node:net';
import type { LookupFunction, NetConnectOpts } from 'node:net';
import type { Duplex } from 'node:stream';
import { AppError } from '@stowage/common/errors';

/** An endpoint's address is one that no backend may have. An AppError, so that stores hand it on as it is. */
export class EndpointDenied extends AppError {
  constructor(fact: string) {
    super('unavailable', 'The endpoint’s address is not allowed here.', {
      members: { retry_after: 2 },
      cause: new Error(fact),
    });
  }
}

/** The agents that every request to a backend goes through. */
export interface Agents {
  http: http.Agent;
  https: https.Agent;
}

/** Resolves a name to all its addresses, as dns.lookup does. */
export type LookupAll = (
  hostname: string,
  options: { all: true },
  callback: (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => void,
) => void;

/** Networks that endpoints must not lie in. */
export class EndpointGuard {
  readonly #denied = new BlockList();
  readonly #lookup: LookupAll;

  /** `networks` as parseNetwork takes them. */
  constructor(networks: readonly string[], lookup: LookupAll = systemLookup) {
    this.#lookup = lookup;
    for (const network of networks) {
      const { address, bits, family } = parseNetwork(network);
      this.#denied.addSubnet(address, bits, family);
    }
  }

  /** Whether an IP address is denied, in whichever way an IPv4 address is written within an IPv6 one. */
  denies(address: string): boolean {
    const [plain = ''] = address.replace(/^\[|\]$/g, '').split('%');
    if (isIP(plain) === 0) return false;
    if (!isIPv6(plain)) return this.#denied.check(plain, 'ipv4');
    const inner = embeddedIpv4(plain);
    return this.#denied.check(plain, 'ipv6') || (inner !== null && this.#denied.check(inner, 'ipv4'));
  }

  /** Whether a host, a name or an address, leads to a denied address now. A name that is unknown does not. */
  async deniesHost(hostname: string, timeoutMs: number): Promise<boolean> {
    const host = hostname.replace(/^\[|\]$/g, '');
    if (isIP(host) !== 0) return this.denies(host);
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const timer = setTimeout(() => resolve(false), timeoutMs);
    this.#lookup(host, { all: true }, (error, addresses) =>
      resolve(error === null && addresses.some(({ address }) => this.denies(address))),
    );
    return promise.finally(() => clearTimeout(timer));
  }

  /**
   * Agents that connect to no denied address: each new connection's is checked after the name was resolved and is the one
   * that is connected to, so that a name which changes its mind gains nothing.
   */
  agents(): Agents {
    const options = { keepAlive: true, lookup: this.#guardedLookup(), timeout: 60_000 };
    const refuse = (host: string | undefined): EndpointDenied | null =>
      host !== undefined && this.denies(host) ? new EndpointDenied(`${host} is denied`) : null;
    return { http: new GuardedHttpAgent(options, refuse), https: new GuardedHttpsAgent(options, refuse) };
  }

  #guardedLookup(): LookupFunction {
    return (hostname, options, callback) => {
      this.#lookup(hostname, { all: true }, (error, addresses) => {
        if (error) return callback(error, '');
        if (addresses.some(({ address }) => this.denies(address))) {
          return callback(new EndpointDenied(`${hostname} leads to a denied address`), '');
        }
        const family = options.family === 'IPv4' ? 4 : options.family === 'IPv6' ? 6 : options.family;
        const fitting = addresses.filter((found) => !family || found.family === family);
        const [first] = fitting;
        if (!first) return callback(Object.assign(new Error(`${hostname} has no address`), { code: 'ENOTFOUND' }), '');
        if (options.all) return callback(null, fitting);
        return callback(null, first.address, first.family);
      });
    };
  }
}

type Refuse = (host: string | undefined) => EndpointDenied | null;
type Connected = (error: Error | null, stream: Duplex) => void;

/** An address needs no look-up, so it is checked here. */
class GuardedHttpAgent extends http.Agent {
  readonly #refuse: Refuse;

  constructor(options: http.AgentOptions, refuse: Refuse) {
    super(options);
    this.#refuse = refuse;
  }

  override createConnection(options: NetConnectOpts & http.AgentOptions, callback?: Connected) {
    const refusal = this.#refuse(hostOf(options));
    if (refusal) throw refusal;
    return super.createConnection(options, callback);
  }
}

class GuardedHttpsAgent extends https.Agent {
  readonly #refuse: Refuse;

  constructor(options: https.AgentOptions, refuse: Refuse) {
    super(options);
    this.#refuse = refuse;
  }

  override createConnection(options: https.RequestOptions, callback?: Connected) {
    const refusal = this.#refuse(options.host ?? undefined);
    if (refusal) throw refusal;
    return super.createConnection(options, callback);
  }
}

function hostOf(options: NetConnectOpts): string | undefined {
  return 'host' in options ? options.host : undefined;
}

/** Parses `a.b.c.d/n`, `x::y/n` or an address alone. */
export function parseNetwork(text: string): { address: string; bits: number; family: 'ipv4' | 'ipv6' } {
  const [address = '', prefix, ...rest] = text.split('/');
  const version = isIP(address);
  const width = version === 4 ? 32 : 128;
  const bits = prefix === undefined ? width : /^\d{1,3}$/.test(prefix) ? Number(prefix) : Number.NaN;
  if (version === 0 || rest.length > 0 || !(bits <= width)) {
    throw new Error(`must hold networks such as 169.254.0.0/16, not "${text}"`);
  }
  return { address, bits, family: version === 4 ? 'ipv4' : 'ipv6' };
}

/** The IPv4 address within a mapped, compatible, NAT64 or 6to4 IPv6 address; null within any other. */
function embeddedIpv4(address: string): string | null {
  const words = wordsOf(address);
  const [a = 0, b = 0, c = 0] = words;
  const [high = 0, low = 0] = words.slice(6);
  const zeros = (from: number, to: number): boolean => words.slice(from, to).every((word) => word === 0);
  if (a === 0x2002) return dotted(b, c);
  if (a === 0x64 && b === 0xff9b && zeros(2, 6)) return dotted(high, low);
  // Of the compatible form only what is no IPv6 address of its own, such as ::1.
  if (zeros(0, 5) && (words[5] === 0xffff || (words[5] === 0 && high !== 0))) return dotted(high, low);
  return null;
}

function dotted(high: number, low: number): string {
  return [high >> 8, high & 0xff, low >> 8, low & 0xff].join('.');
}

/** The eight 16-bit words of a valid IPv6 address. */
function wordsOf(address: string): number[] {
  // The URL parser knows every way to write one, and gives hexadecimal words.
  const [head = '', tail] = new URL(`http://[${address}]/`).hostname.slice(1, -1).split('::');
  const left = head === '' ? [] : head.split(':');
  const right = tail === undefined || tail === '' ? [] : tail.split(':');
  const gap = tail === undefined ? 0 : 8 - left.length - right.length;
  return [...left, ...Array.from({ length: gap }, () => '0'), ...right].map((word) => parseInt(word, 16));
}
