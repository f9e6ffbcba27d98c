import type { FastifyReply } from 'fastify';

/** Answers with a status and no body at all. */
export function sendNothing(reply: FastifyReply, status = 204): FastifyReply {
  return reply.code(status).send();
}
