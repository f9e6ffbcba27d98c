import type { IncomingMessage } from 'node:http';
import { holdsBodyBack } from '../http/server-guards.ts';

const limits = { bytes: 16 * 1024 * 1024, ms: 5_000 };

/**
 * Reads and drops what is left of a refused body, up to a limit, so that the client gets to read why it was refused
 * instead of a reset connection. True: the body was read to its end, and the connection can be kept.
 */
export async function drain(request: IncomingMessage): Promise<boolean> {
  if (request.destroyed || request.readableEnded) return request.complete;
  if (holdsBodyBack(request)) return false;
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, limits.ms);
  let bytes = 0;
  request.on('data', (piece: Buffer) => {
    bytes += piece.length;
    if (bytes > limits.bytes) resolve();
  });
  // Whoever read before may have paused it. It is left to flow: as long as anything received is not read, Node takes no
  // further request from the connection.
  request
    .once('end', resolve)
    .once('close', resolve)
    .once('error', () => resolve())
    .resume();
  await promise;
  clearTimeout(timer);
  return request.readableEnded;
}
