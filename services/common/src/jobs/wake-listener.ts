import pg from 'pg';
import type { Logger } from '../runtime/logger.ts';
import { wakeChannel } from './enqueue.ts';

const reconnectMs = 1_000;

/** Hears, over one connection a process, that jobs became due. Notifications may be lost: callers poll as well. */
export class WakeListener {
  readonly #url: string;
  readonly #logger: Logger;
  #client: pg.Client | null = null;
  #closed = false;
  #reconnect: NodeJS.Timeout | undefined;
  #bell = Promise.withResolvers<void>();

  constructor(url: string, logger: Logger) {
    this.#url = url;
    this.#logger = logger;
  }

  /** Connects in the background and stays connected. */
  start(): void {
    void this.#connect();
  }

  /** Settles at the next wake-up, after `timeoutMs`, or when `signal` aborts, whichever is first. */
  async next(timeoutMs: number, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, timeoutMs);
    const onAbort = (): void => resolve();
    signal.addEventListener('abort', onAbort, { once: true });
    await Promise.race([promise, this.#bell.promise]);
    clearTimeout(timer);
    signal.removeEventListener('abort', onAbort);
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#reconnect);
    await this.#client?.end().catch(() => undefined);
  }

  async #connect(): Promise<void> {
    if (this.#closed) return;
    const client = new pg.Client({ connectionString: this.#url, connectionTimeoutMillis: 5_000, application_name: 'stowage-wake' });
    client.on('error', (error) => this.#logger.warn({ err: error }, 'The wake-up connection broke.'));
    client.on('end', () => this.#retry());
    client.on('notification', () => this.#ring());
    this.#client = client;
    try {
      await client.connect();
      await client.query(`listen ${wakeChannel}`);
      this.#ring();
    } catch (error) {
      this.#logger.warn({ err: error }, 'The wake-up connection can not be opened just now.');
      await client.end().catch(() => undefined);
      this.#retry();
    }
  }

  #retry(): void {
    if (this.#closed) return;
    clearTimeout(this.#reconnect);
    this.#reconnect = setTimeout(() => void this.#connect(), reconnectMs);
  }

  #ring(): void {
    this.#bell.resolve();
    this.#bell = Promise.withResolvers<void>();
  }
}
