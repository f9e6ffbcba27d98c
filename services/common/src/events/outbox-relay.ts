import { setTimeout as wait } from 'node:timers/promises';
import type { Kysely } from 'kysely';
import type { Logger } from '../runtime/logger.ts';
import type { CloudEvent } from './cloud-event.ts';
import type { EventBus } from './event-bus.ts';
import { markPublished, readWaiting } from './outbox-reader.ts';
import { publishInOrder } from './publish-in-order.ts';
import { RelayLease } from './relay-lease.ts';
import { RelayReport } from './relay-report.ts';

export interface RelayOptions<T> {
  db: Kysely<T>;
  bus: EventBus;
  logger: Logger;
  /** Events in memory at a time; the most that may be published and not yet marked. */
  batch?: number;
  /** Events on their way to the bus at a time. */
  atOnce?: number;
  /** After how long another relay takes over from a dead one; well above what a publish may take. */
  leaseMs?: number;
  /** How long an event waits at most where all is well. */
  pollMs?: number;
  /** The longest pause after failures. */
  retryMs?: number;
  /** Hears how many events the bus took. */
  onPublished?: (count: number) => void;
}

/** In ms, unless told otherwise. It polls, for a notification from each writer would cost that a lock all writers share. */
export const relayTiming = { leaseMs: 15_000, pollMs: 250, retryMs: 5_000 };
const defaults = { batch: 500, atOnce: 100, ...relayTiming, onPublished: (_count: number): void => undefined };
const standbyMs = 1_000;
const firstRetryMs = 250;

/**
 * Publishes the outbox. One relay of all processes does at a time. Each event is published at least once, those of one
 * resource in the order of its changes, also over failures and takeovers; between resources there is no order. While the
 * bus is away events wait in the outbox, for any time.
 */
export class OutboxRelay<T> {
  readonly #options: RelayOptions<T> & typeof defaults;
  readonly #lease: RelayLease<T>;
  readonly #report: RelayReport;
  readonly #stop = new AbortController();
  /** What the bus had when this relay began, or began again: published, perhaps, and not marked. Null: to be asked. */
  #kept: ReadonlySet<string> | null = null;
  #failures = 0;
  #busFails = false;
  #loop: Promise<void> = Promise.resolve();

  constructor(options: RelayOptions<T>) {
    this.#options = { ...defaults, ...options };
    this.#lease = new RelayLease(options.db, this.#options.leaseMs);
    this.#report = new RelayReport(options.logger);
  }

  /** Whether the bus did not take events, or did not tell what it keeps, when this relay asked it last. */
  get busFails(): boolean {
    return this.#busFails;
  }

  start(): void {
    this.#loop = this.#work();
  }

  /** Waits for what is on its way, marks it, and gives the lease back. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#loop;
    await this.#lease.release();
  }

  async #work(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      const pauseMs = await this.#turn().catch((error: unknown) => this.#startOver(error));
      if (pauseMs > 0) await wait(pauseMs, undefined, { signal }).catch(() => undefined);
    }
  }

  /** Publishes a batch. Gives how long to wait before the next. */
  async #turn(): Promise<number> {
    const { db, bus, batch, pollMs } = this.#options;
    const fence = await this.#lease.hold();
    if (fence === null) {
      this.#kept = null;
      this.#busFails = false;
      return standbyMs;
    }
    // Twice, for a batch of the relay before may have been on its way while this one began.
    this.#kept ??= await bus.recentIds(2 * batch).catch((error: unknown) => this.#blameBus(error));
    const events = await readWaiting(db, fence, batch);
    if (events.length > 0) await this.#publish(events, this.#kept);
    this.#failures = 0;
    this.#busFails = false;
    this.#report.works();
    return events.length < batch ? pollMs : 0;
  }

  async #publish(events: readonly CloudEvent[], kept: ReadonlySet<string>): Promise<void> {
    const { db, bus, atOnce, onPublished } = this.#options;
    const published = events.filter(({ id }) => kept.has(id)).map(({ id }) => id);
    const fresh = events.filter(({ id }) => !kept.has(id));
    const mayGoOn = (): boolean => this.#lease.isHeld && !this.#stop.signal.aborted;
    const { ids, failure } = await publishInOrder(fresh, (event) => bus.publish(event), { atOnce, mayGoOn });
    await markPublished(db, [...published, ...ids]);
    onPublished(ids.length);
    if (ids.length > 0) this.#failures = 0;
    if (failure) this.#blameBus(failure);
  }

  #blameBus(error: unknown): never {
    this.#busFails = true;
    throw error;
  }

  /**
   * What became of events that were on their way is not known: the bus is asked before any is sent again. The lease goes
   * back, as another process may reach the bus where this one can't.
   */
  async #startOver(error: unknown): Promise<number> {
    this.#kept = null;
    this.#report.fails(error);
    await this.#lease.release();
    const most = Math.min(this.#options.retryMs, firstRetryMs * 2 ** this.#failures);
    this.#failures += 1;
    return most * (0.5 + Math.random() / 2);
  }
}
