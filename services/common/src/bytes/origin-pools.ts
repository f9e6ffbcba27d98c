import { isIP } from 'node:net';
import { Pool } from 'undici';
import { lookupAll } from '../rpc/addresses.ts';
import type { Lookup } from '../rpc/addresses.ts';
import { withinWait } from '../within-wait.ts';

/** How long an address that took no connection is used only where no other is left. */
const avoidMs = 5_000;
/** How long a request waits for a resolver that does not answer. */
const patienceMs = { first: 5_000, again: 1_000 };
/** How old the addresses of a name may be when they are used; asked again behind the back of requests. */
const resolveMs = 2_000;

/** One address and the connections to it. */
interface Upstream {
  readonly pool: Pool;
  avoidUntil: number;
}

/** A pool of connections for each address behind one or several origins, used in turn. */
export class OriginPools {
  readonly #origins: readonly URL[];
  readonly #options: Pool.Options;
  readonly #lookup: Lookup;
  /** By origin with an address for its host. */
  readonly #upstreams = new Map<string, Upstream>();
  #resolvedAt = Number.NEGATIVE_INFINITY;
  #resolving: Promise<void> | null = null;
  #turn = 0;
  #closed = false;

  /** `origins` are comma-separated and like `http://host:port`; `options` are those of each pool. */
  constructor(origins: string, options: Pool.Options, lookup: Lookup = lookupAll) {
    this.#origins = origins.split(',').map((origin) => new URL(origin.trim()));
    this.#options = options;
    this.#lookup = lookup;
  }

  /**
   * The pool whose turn it is: not one of `failed`, and one that is avoided only where no other is left. Null where
   * nothing is left. Throws where no name can be resolved.
   */
  async next(failed: ReadonlySet<Pool>): Promise<Pool | null> {
    if (this.#upstreams.size === 0) await this.#firstResolve();
    else if (performance.now() - this.#resolvedAt > resolveMs) void this.#resolve().catch(() => undefined);
    const now = performance.now();
    const left = [...this.#upstreams.values()].filter(({ pool }) => !failed.has(pool));
    const working = left.filter(({ avoidUntil }) => avoidUntil <= now);
    const choice = working.length > 0 ? working : left;
    this.#turn = (this.#turn + 1) % Number.MAX_SAFE_INTEGER;
    return choice[this.#turn % choice.length]?.pool ?? null;
  }

  /** Notes that the address of `pool` took no connection, and looks at once whether there are others now. */
  async avoid(pool: Pool): Promise<void> {
    for (const upstream of this.#upstreams.values()) {
      if (upstream.pool === pool) upstream.avoidUntil = performance.now() + avoidMs;
    }
    await withinWait(
      this.#resolve().catch(() => undefined),
      patienceMs.again,
    );
  }

  /** Breaks off what is under way. */
  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all([...this.#upstreams.values()].map(({ pool }) => pool.destroy()));
  }

  async #firstResolve(): Promise<void> {
    const answered = this.#resolve().then(() => true);
    if ((await withinWait(answered, patienceMs.first)) === null) {
      throw new Error(`no address within ${patienceMs.first} ms`);
    }
  }

  #resolve(): Promise<void> {
    this.#resolving ??= this.#resolveNow().finally(() => (this.#resolving = null));
    return this.#resolving;
  }

  async #resolveNow(): Promise<void> {
    this.#resolvedAt = performance.now();
    const found = await Promise.allSettled(this.#origins.map((origin) => this.#addressesOf(origin)));
    if (this.#closed) return;
    const known = found.flatMap((result) => (result.status === 'fulfilled' ? result.value : []));
    for (const address of known) {
      if (this.#upstreams.has(address)) continue;
      this.#upstreams.set(address, { pool: new Pool(address, this.#options), avoidUntil: 0 });
    }
    const failure = found.find((result) => result.status === 'rejected');
    // A name that can't be resolved just now keeps the addresses that it had.
    if (failure && this.#upstreams.size === 0) throw failure.reason;
    if (!failure) this.#retire(new Set(known));
  }

  /** What is under way at an address that is gone from its name ends in peace. */
  #retire(known: ReadonlySet<string>): void {
    for (const [address, { pool }] of this.#upstreams) {
      if (known.has(address)) continue;
      this.#upstreams.delete(address);
      void pool.close();
    }
  }

  async #addressesOf(origin: URL): Promise<string[]> {
    const host = origin.hostname.replace(/^\[|\]$/g, '');
    const addresses = isIP(host) ? [host] : await this.#lookup(host);
    return addresses.map((address) => {
      const at = new URL(origin);
      at.hostname = isIP(address) === 6 ? `[${address}]` : address;
      return at.origin;
    });
  }
}
