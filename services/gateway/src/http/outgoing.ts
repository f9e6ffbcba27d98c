import { free } from '@stowage/common/bytes/free';
import { once } from 'node:events';
import type { FastifyReply } from 'fastify';
import type { ServerResponse } from 'node:http';

/** Takes an answer over from Fastify and sends its head, with the headers that were set so far; no hook sees it any more. */
export function beginAnswer(
  reply: FastifyReply,
  status: number,
  headers: Readonly<Record<string, string>>,
): ServerResponse {
  const all = Object.entries(reply.headers(headers).getHeaders()).filter((entry) => entry[1] !== undefined);
  reply.hijack();
  const last = reply.server.isGoingAway(reply.request) ? { connection: 'close' } : {};
  return reply.raw.writeHead(status, { ...Object.fromEntries(all), ...last });
}

/** Writes with back-pressure; the bytes are given away, and empty afterwards. Throws when `signal` is aborted. */
export async function write(response: ServerResponse, bytes: Buffer, signal: AbortSignal): Promise<void> {
  if (!response.write(bytes, () => free(bytes))) await once(response, 'drain', { signal });
}

/**
 * Resolves when all that was written has left the process, or the client is gone. Node takes a connection for idle as
 * soon as its answer was ended, and a server that stops cuts idle connections, whatever is still buffered.
 */
export async function allSent(response: ServerResponse, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  signal.addEventListener('abort', () => resolve(), { once: true });
  response.write(Buffer.alloc(0), () => resolve());
  await promise;
}
