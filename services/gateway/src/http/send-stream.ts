import type { FastifyReply } from 'fastify';
import type { Readable } from 'node:stream';
import { allSent, beginAnswer, write } from './outgoing.ts';

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
  const response = beginAnswer(reply, 200, headers);
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
