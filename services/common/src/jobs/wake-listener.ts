import { NotificationListener } from '../database/notification-listener.ts';
import type { Logger } from '../runtime/logger.ts';
import { wakeChannel } from './enqueue.ts';

/** Hears that jobs became due. Notifications may be lost: callers poll as well. */
export class WakeListener {
  /** The one connection of this process that hears notifications, for whoever else needs to. */
  readonly notifications: NotificationListener;
  #bell = Promise.withResolvers<void>();

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
    const timer = setTimeout(resolve, timeoutMs);
    const onAbort = (): void => resolve();
    signal.addEventListener('abort', onAbort, { once: true });
    await Promise.race([promise, this.#bell.promise]);
    clearTimeout(timer);
    signal.removeEventListener('abort', onAbort);
  }

  close(): Promise<void> {
    return this.notifications.close();
  }

  #ring(): void {
    this.#bell.resolve();
    this.#bell = Promise.withResolvers<void>();
  }
}
