import { isIP } from 'node:net';
import type { Client as Channel } from '@grpc/grpc-js';
import { unavailable } from '../errors.ts';
import { withinWait } from '../within-wait.ts';
import { lookupAll } from './addresses.ts';
import type { Lookup } from './addresses.ts';

/** How old the addresses of a name may be when a call is made; looked up again behind the back of calls. */
const lookMs = 2_000;
/** Older addresses than this may all be dead: the first call after so long an idle time waits for a look, but not long. */
const usualIdleMs = 10_000;
const idlePatienceMs = 1_000;
/** How long the first call waits for addresses: a resolver that does not answer keeps asking for most of a minute. */
const usualPatienceMs = 5_000;
/** After how long connections are made anew, unless said otherwise: certificates that were replaced are out of use by then. */
const usualRenewMs = 60_000;

/** A channel, and the calls that go over it. */
interface Opened {
  readonly target: string;
  readonly channel: Channel;
  readonly openedAt: number;
  calls: number;
  isRetired: boolean;
}

/**
 * The way to all processes of a service. A process whose address is gone from the name, as that of a pod that is to
 * stop, gets no more calls: those under way end in peace. It is the caller that leaves, as a call that is sent while
 * the other end closes the connection is lost, and nobody knows whether it was made.
 */
export class ServiceChannel {
  readonly #target: string;
  readonly #host: { name: string; port: string } | null;
  readonly #open: (target: string) => Channel;
  readonly #lookup: Lookup;
  readonly #renewMs: number;
  readonly #patienceMs: number;
  readonly #idleMs: number;
  #current: Opened | null = null;
  #lookedAt = Number.NEGATIVE_INFINITY;
  #looking: Promise<void> | null = null;
  #isClosed = false;

  /** `target` is host:port, or as gRPC names addresses: dns:///host:port, ipv4:a:p,b:p. */
  constructor(
    target: string,
    open: (target: string) => Channel,
    {
      lookup = lookupAll,
      renewMs = usualRenewMs,
      patienceMs = usualPatienceMs,
      idleMs = usualIdleMs,
    }: { lookup?: Lookup; renewMs?: number; patienceMs?: number; idleMs?: number } = {},
  ) {
    this.#target = target;
    this.#host = hostOf(target);
    this.#open = open;
    this.#lookup = lookup;
    this.#renewMs = renewMs;
    this.#patienceMs = patienceMs;
    this.#idleMs = idleMs;
  }

  /** Makes a call over a channel that stays until it is over. Throws `unavailable` where the name has no address. */
  async use<T>(call: (channel: Channel) => Promise<T>): Promise<T> {
    if (this.#current && performance.now() - this.#lookedAt > this.#idleMs) await this.#lookAfterIdling();
    const opened = this.#current ?? (await this.#firstLook());
    // Counted before another channel may take its place, which closes one that has no calls.
    opened.calls += 1;
    try {
      this.#lookAgain();
      return await call(opened.channel);
    } finally {
      opened.calls -= 1;
      closeUnused(opened);
    }
  }

  /** Takes no more calls; those under way end by themselves. */
  close(): void {
    this.#isClosed = true;
    this.#current?.channel.close();
  }

  async #firstLook(): Promise<Opened> {
    try {
      const answered = this.#look().then(() => true);
      if ((await withinWait(answered, this.#patienceMs)) === null) {
        throw new Error(`no address within ${this.#patienceMs} ms`);
      }
    } catch (error) {
      throw unavailable(`${this.#target} can't be found just now.`, error);
    }
    if (!this.#current) throw unavailable('The connections are closed.');
    return this.#current;
  }

  /** A name that can't be resolved just now keeps the addresses that it had. */
  async #lookAfterIdling(): Promise<void> {
    await withinWait(
      this.#look().catch(() => undefined),
      idlePatienceMs,
    );
  }

  #lookAgain(): void {
    if (performance.now() - this.#lookedAt < lookMs) return;
    // A name that can't be resolved just now keeps the addresses that it had.
    this.#look().catch(() => undefined);
  }

  #look(): Promise<void> {
    this.#looking ??= this.#lookNow().finally(() => (this.#looking = null));
    return this.#looking;
  }

  async #lookNow(): Promise<void> {
    this.#lookedAt = performance.now();
    const target = this.#host === null ? this.#target : await this.#resolve(this.#host);
    const before = this.#current;
    const isSame = before?.target === target && performance.now() - before.openedAt < this.#renewMs;
    if (this.#isClosed || isSame) return;
    this.#current = { target, channel: this.#open(target), openedAt: performance.now(), calls: 0, isRetired: false };
    if (!before) return;
    before.isRetired = true;
    closeUnused(before);
  }

  async #resolve({ name, port }: { name: string; port: string }): Promise<string> {
    const found = (await this.#lookup(name)).toSorted();
    const four = found.filter((address) => isIP(address) === 4);
    if (four.length > 0) return `ipv4:${four.map((address) => `${address}:${port}`).join(',')}`;
    return `ipv6:${found.map((address) => `[${address}]:${port}`).join(',')}`;
  }
}

function closeUnused({ channel, calls, isRetired }: Opened): void {
  if (isRetired && calls === 0) channel.close();
}

/** The name to look up; null where the target consists of addresses. */
function hostOf(target: string): { name: string; port: string } | null {
  const [, name = '', port = ''] = /^(?:dns:\/\/\/)?([^:/[\]]+):(\d+)$/.exec(target) ?? [];
  return name === '' || isIP(name) ? null : { name, port };
}
