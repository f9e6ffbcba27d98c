import { NotificationListener } from '../database/notification-listener.ts';
import type { Logger } from '../runtime/logger.ts';
import { wakeChannel } from './enqueue.ts';

/** Hears that jobs became due. Notifications may be lost: callers poll as well. */
export class WakeListener {
  /** The one connection of this process that hears notifications, for whoever else needs to. */
  readonly notifications: NotificationListener;
  readonly #waiting = new Set<() => void>();

  constructor(url: string, logger: Logger) {
    this.notifications = new NotificationListener(url, logger);
    this.notifications.subscribe(wakeChannel, () => this.#ring());
  }

  /** Connects in the background and stays connected. */
  start(): void {
    this.notifications.start();
  }

  /** Settles at the next wake-up, after `timeoutMs`, or when `signal` aborts, whichever is first. */
  async next(timeoutMs: number, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    // Not a race with a promise that lives on: that keeps what it is raced with, for as long as nothing rings.
    const end = (): void => resolve();
    this.#waiting.add(end);
    const timer = setTimeout(end, timeoutMs);
    signal.addEventListener('abort', end, { once: true });
    await promise;
    this.#waiting.delete(end);
    clearTimeout(timer);
    signal.removeEventListener('abort', end);
  }

  close(): Promise<void> {
    return this.notifications.close();
  }

  #ring(): void {
    for (const end of this.#waiting) end();
  }
}
