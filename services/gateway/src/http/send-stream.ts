import type { FastifyReply } from 'fastify';
import type { Readable } from 'node:stream';
import { allSent, write } from './outgoing.ts';

/**
 * Answers 200 with a stream that has begun, with back-pressure. What breaks it breaks the connection, so that nobody takes a
 * half for a whole; a client that leaves ends it.
 */
export async function sendStream(
  reply: FastifyReply,
  headers: Readonly<Record<string, string>>,
  body: Readable,
  signal: AbortSignal,
): Promise<void> {
  const all = Object.entries(reply.headers(headers).getHeaders()).filter((entry) => entry[1] !== undefined);
  reply.hijack();
  const response = reply.raw;
  response.writeHead(200, Object.fromEntries(all));
  try {
    for await (const bytes of body) await write(response, bytes, signal);
    await allSent(response, signal);
    response.end();
  } catch (error) {
    if (!signal.aborted) reply.log.warn({ err: error }, 'An answer broke off.');
    response.destroy();
  } finally {
    body.destroy();
  }
}
