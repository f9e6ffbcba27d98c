import { AppError, unavailable } from '@stowage/common/errors';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { allows, isWrite } from '../http/access.ts';
import { findSession } from './sessions.ts';
import type { Session, SessionLimits, SessionStore } from './sessions.ts';

declare module 'fastify' {
  interface FastifyRequest {
    session: Session | null;
    /** Aborted when the client is gone. */
    gone: AbortController;
  }
}

/**
 * The one authorisation of `/api` and `/files`: a bearer token, the role that the route declares, and the mode of the
 * service. Runs before the body is read, so that 401 and 403 come before 400. An unknown address needs a token as well.
 */
export function addAuthorisation(app: FastifyInstance, store: SessionStore, limits: SessionLimits): void {
  app.decorateRequest('session', null);
  app.addHook('onRequest', async (request) => {
    const { access, allowedReadOnly } = request.routeOptions.config;
    if (access === 'public' || request.method === 'OPTIONS' || isForeign(request)) return;
    const session = await findSession(store, bearerToken(request), limits);
    request.session = session;
    if (access !== undefined && !allows(access, session.actor.role)) {
      throw new AppError('forbidden', `This needs the role ${access}; you are ${session.actor.role}.`);
    }
    if (session.readOnly && access !== undefined && isWrite(request.method) && !allowedReadOnly) {
      throw unavailable('The service is read-only just now, by an admin’s wish.', undefined, 30);
    }
  });
}

/** Outside `/api` and `/files` there is nothing to protect, and nothing at all. */
function isForeign(request: FastifyRequest): boolean {
  return request.routeOptions.config.access === undefined && !/^\/(api|files)(\/|\?|$)/.test(request.url);
}

function bearerToken(request: FastifyRequest): string {
  // Node keeps the first of several; a proxy before us may have judged by another.
  const given = request.raw.headersDistinct['authorization'] ?? [];
  const match = /^bearer ([^\s,]+)$/i.exec(given.length === 1 ? (given[0] ?? '') : '');
  if (!match?.[1]) {
    throw new AppError('unauthenticated', 'Send the access token as "Authorization: Bearer <token>".');
  }
  return match[1];
}
