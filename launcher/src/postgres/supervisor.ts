import { setTimeout as sleep } from 'node:timers/promises';

const PAUSE_MS = { first: 100, last: 5_000 };
/** One that ran for so long did not end because of how it was started. */
const STEADY_MS = 10_000;

/** A server that runs, of this process or adopted by it. */
export interface RunningServer {
  readonly port: number;
  /** Resolves with a few words on how it ended, when it ends; rejects once `signal` is aborted. */
  ended(signal: AbortSignal): Promise<string>;
  /** Stops it, or waits until it is gone. */
  stop(): Promise<void>;
}

interface Options {
  /** Brings the server up again, at the port that it had. */
  bringUp(port: number): Promise<RunningServer>;
  log(message: string): void;
}

/** Keeps a server running: one that ends is started again, at the same port, with growing pauses while that fails. */
export class Supervisor {
  #running: RunningServer;
  readonly #options: Options;
  readonly #stop = new AbortController();
  #watching: Promise<void> | null = null;
  #stopped: Promise<void> | null = null;

  constructor(running: RunningServer, options: Options) {
    this.#running = running;
    this.#options = options;
  }

  /** From now on until `stop`. */
  keepRunning(): void {
    this.#watching ??= this.#watch();
  }

  async stop(): Promise<void> {
    return (this.#stopped ??= this.#end());
  }

  async #end(): Promise<void> {
    this.#stop.abort();
    // One that is just being started again is waited for, so that it is not left behind.
    await this.#watching;
    await this.#running.stop();
  }

  async #watch(): Promise<void> {
    const { signal } = this.#stop;
    let pauseMs = 0;
    while (!signal.aborted) {
      const since = performance.now();
      const how = await this.#running.ended(signal).catch(() => null);
      if (how === null || signal.aborted) return;
      if (performance.now() - since > STEADY_MS) pauseMs = 0;
      this.#options.log(`PostgreSQL ended (${how}) and is started again`);
      pauseMs = await this.#startAgain(pauseMs);
    }
  }

  /** Gives how long to pause should it end again at once. */
  async #startAgain(pauseMs: number): Promise<number> {
    const { signal } = this.#stop;
    let nextMs = pauseMs;
    while (!signal.aborted) {
      await sleep(nextMs, undefined, { signal }).catch(() => undefined);
      if (signal.aborted) break;
      nextMs = Math.min(Math.max(nextMs * 2, PAUSE_MS.first), PAUSE_MS.last);
      try {
        this.#running = await this.#options.bringUp(this.#running.port);
        break;
      } catch (error) {
        this.#options.log(`PostgreSQL could not be started again, next try in ${nextMs} ms: ${messageOf(error)}`);
      }
    }
    return nextMs;
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
