import type { Logger } from './logger.ts';

type State = 'starting' | 'ready' | 'draining';

interface Part {
  name: string;
  stop: () => Promise<void>;
}

/** Whether this process takes work, and what has to be stopped, in reverse order of how it was started. */
export class Lifecycle {
  #state: State = 'starting';
  readonly #drains: Part[] = [];
  readonly #stops: Part[] = [];
  readonly #logger: Logger;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  get state(): State {
    return this.#state;
  }

  markReady(): void {
    if (this.#state === 'starting') this.#state = 'ready';
  }

  /** Registers work of the process's own, which ends at once where it is to stop, while requests are still taken. */
  onDrain(name: string, stop: () => Promise<void>): void {
    this.#drains.push({ name, stop });
  }

  /** Registers what to stop; called right after it was started. */
  onStop(name: string, stop: () => Promise<void>): void {
    this.#stops.push({ name, stop });
  }

  /**
   * Turns unready and ends the process's own work, waits `delayMs` for balancers to notice, then stops everything in reverse
   * order.
   */
  async shutDown(delayMs: number): Promise<void> {
    if (this.#state === 'draining') return;
    this.#state = 'draining';
    const drained = Promise.all(this.#drains.map((part) => this.#end(part)));
    if (delayMs > 0) await new Promise((resolve) => setTimeout(resolve, delayMs));
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
