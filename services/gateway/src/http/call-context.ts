import { AppError, validationError } from '@stowage/common/errors';
import { fingerprintOf } from '@stowage/common/rpc/context';
import type { Actor, CallContext, IdempotencyKey } from '@stowage/common/rpc/context';
import type { FastifyRequest } from 'fastify';

/** The user behind a request. Throws `unauthenticated` on a public route that forgot to ask for one. */
export function actorOf(request: FastifyRequest): Actor {
  if (!request.session) throw new AppError('unauthenticated', 'Log in first.');
  return request.session.actor;
}

/** What a call made for this request carries: its id, user, idempotency key, and the end of the client's patience. */
export function contextOf(request: FastifyRequest): CallContext {
  return {
    requestId: request.id,
    actor: request.session?.actor ?? null,
    idempotency: idempotencyKeyOf(request),
    signal: request.gone.signal,
  };
}

function idempotencyKeyOf(request: FastifyRequest): IdempotencyKey | null {
  const key = request.headers['idempotency-key'];
  if (key === undefined || !request.routeOptions.config.idempotent) return null;
  if (typeof key !== 'string' || !/^[\x21-\x7e]{1,128}$/.test(key)) {
    throw validationError([
      { pointer: '/headers/idempotency-key', detail: 'must be 1 to 128 visible ASCII characters' },
    ]);
  }
  return { key, route: `${request.method} ${request.url}`, fingerprint: fingerprintOf(request.body) };
}
