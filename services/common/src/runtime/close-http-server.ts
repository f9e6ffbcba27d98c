import type { Server } from 'node:http';
import { Server as NetServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** A request that was sent before its client could know is on the wire for no longer. */
const lingerMs = 250;
const sweepMs = 100;

/**
 * Takes no new connections; answers what is under way, and what comes on connections that are open yet within a moment;
 * cuts off what has not ended after `graceMs`.
 */
export async function closeHttpServer(server: Server, graceMs: number): Promise<void> {
  if (!server.listening) return;
  const cut = setTimeout(() => server.closeAllConnections(), graceMs);
  // Node's own `close` of HTTP ends idle connections at once, one whose request has just arrived among them.
  const closed = new Promise<void>((resolve) => NetServer.prototype.close.call(server, () => resolve()));
  await Promise.race([closed, sleep(Math.min(lingerMs, graceMs))]);
  const sweep = setInterval(() => server.closeIdleConnections(), sweepMs);
  server.closeIdleConnections();
  await closed;
  clearInterval(sweep);
  clearTimeout(cut);
}
