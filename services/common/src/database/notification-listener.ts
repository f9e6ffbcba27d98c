import pg from 'pg';
import type { Logger } from '../runtime/logger.ts';

const reconnectMs = 1_000;

/** Hears a payload, or null after every (re)connection: something may have been missed. Must not throw. */
export type OnNotification = (payload: string | null) => void;

/** Hears NOTIFY over one connection a process. Notifications may be lost: whoever needs one asks or polls again. */
export class NotificationListener {
  readonly #url: string;
  readonly #logger: Logger;
  readonly #channels = new Map<string, OnNotification>();
  #client: pg.Client | null = null;
  #closed = false;
  #reconnect: NodeJS.Timeout | undefined;

  constructor(url: string, logger: Logger) {
    this.#url = url;
    this.#logger = logger;
  }

  /** Connects in the background and stays connected. */
  start(): void {
    void this.#connect();
  }

  /** Hears a channel from now on, one listener a channel; `channel` is a plain identifier of ours. */
  subscribe(channel: string, listener: OnNotification): void {
    this.#channels.set(channel, listener);
    if (this.#client) void this.#listen(this.#client, [channel]);
  }

  unsubscribe(channel: string): void {
    this.#channels.delete(channel);
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#reconnect);
    await this.#client?.end().catch(() => undefined);
  }

  async #connect(): Promise<void> {
    if (this.#closed) return;
    const client = new pg.Client({
      connectionString: this.#url,
      connectionTimeoutMillis: 5_000,
      keepAlive: true,
      application_name: 'stowage-notifications',
    });
    this.#client = client;
    client.on('error', (error) => this.#logger.warn({ err: error }, 'The connection for notifications broke.'));
    client.on('end', () => this.#retry(client));
    client.on('notification', ({ channel, payload }) => this.#channels.get(channel)?.(payload ?? ''));
    try {
      await client.connect();
    } catch (error) {
      this.#logger.warn({ err: error }, 'The connection for notifications can not be opened just now.');
      this.#retry(client);
      return;
    }
    await this.#listen(client, [...this.#channels.keys()]);
  }

  async #listen(client: pg.Client, channels: readonly string[]): Promise<void> {
    try {
      for (const channel of channels) {
        await client.query(`listen ${client.escapeIdentifier(channel)}`);
        this.#channels.get(channel)?.(null);
      }
    } catch (error) {
      this.#logger.warn({ err: error }, 'A channel for notifications can not be heard just now.');
      this.#retry(client);
    }
  }

  #retry(client: pg.Client): void {
    if (this.#client !== client) return;
    this.#client = null;
    client.end().catch(() => undefined);
    if (this.#closed) return;
    this.#reconnect = setTimeout(() => void this.#connect(), reconnectMs);
  }
}
