import type { Logger } from './logger.ts';

type State = 'starting' | 'ready' | 'draining';

/** Whether this process takes work, and what has to be stopped, in reverse order of how it was started. */
export class Lifecycle {
  #state: State = 'starting';
  readonly #stops: { name: string; stop: () => Promise<void> }[] = [];
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

  /** Registers what to stop; called right after it was started. */
  onStop(name: string, stop: () => Promise<void>): void {
    this.#stops.push({ name, stop });
  }

  /** Turns unready, waits `delayMs` for balancers to notice, then stops everything in reverse order. */
  async shutDown(delayMs: number): Promise<void> {
    if (this.#state === 'draining') return;
    this.#state = 'draining';
    if (delayMs > 0) await new Promise((resolve) => setTimeout(resolve, delayMs));
    for (const { name, stop } of this.#stops.reverse()) {
      try {
        await stop();
      } catch (error) {
        this.#logger.error({ err: error, part: name }, 'A part of the process did not stop cleanly.');
      }
    }
  }
}
