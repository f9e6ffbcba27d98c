import type { Logger } from './logger.ts';

type State = 'starting' | 'ready' | 'draining';

/** What a start waits for. */
export interface Waiting {
  /** A sentence. */
  detail: string;
  /** Whether it takes someone to mend it, rather than time. */
  blocked: boolean;
}

interface Part {
  name: string;
  stop: () => Promise<void>;
}

/** Whether this process takes work, and what has to be stopped, in reverse order of how it was started. */
export class Lifecycle {
  #state: State = 'starting';
  #waitsFor: Waiting | null = null;
  readonly #draining = new AbortController();
  readonly #drains: Part[] = [];
  readonly #stops: Part[] = [];
  readonly #logger: Logger;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  get state(): State {
    return this.#state;
  }

  /** What the start waits for; null where it goes on, or is over. */
  get waitsFor(): Waiting | null {
    return this.#state === 'starting' ? this.#waitsFor : null;
  }

  /** Aborted when the shutdown begins. */
  get draining(): AbortSignal {
    return this.#draining.signal;
  }

  /** Says what the start waits for, for whoever looks at this process; null when it waits no longer. */
  waitFor(waiting: Waiting | null): void {
    this.#waitsFor = waiting;
  }

  markReady(): void {
    if (this.#state === 'starting') this.#state = 'ready';
  }

  /** Registers work of the process's own, which ends at once where it is to stop, while requests are still taken. */
  onDrain(name: string, stop: () => Promise<void>): void {
    if (this.#state === 'draining') void this.#end({ name, stop });
    else this.#drains.push({ name, stop });
  }

  /** Registers what to stop; called right after it was started. What was started too late is stopped at once. */
  onStop(name: string, stop: () => Promise<void>): void {
    if (this.#state === 'draining') void this.#end({ name, stop });
    else this.#stops.push({ name, stop });
  }

  /**
   * Turns unready and ends the process's own work, waits `delayMs` for balancers to notice where it was ready, then stops
   * everything in reverse order.
   */
  async shutDown(delayMs: number): Promise<void> {
    if (this.#state === 'draining') return;
    const known = this.#state === 'ready';
    this.#state = 'draining';
    this.#draining.abort();
    const drained = Promise.all(this.#drains.map((part) => this.#end(part)));
    if (known && delayMs > 0) await new Promise((resolve) => setTimeout(resolve, delayMs));
    await drained;
    for (const part of this.#stops.reverse()) await this.#end(part);
  }

  async #end({ name, stop }: Part): Promise<void> {
    try {
      await stop();
    } catch (error) {
      this.#logger.error({ err: error, part: name }, 'A part of the process did not stop cleanly.');
    }
  }
}
