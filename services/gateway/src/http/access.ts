import { AppError } from '@stowage/common/errors';
import type { ErrorCode } from '@stowage/common/errors';
import { roles } from '@stowage/common/rpc/context';
import type { Role } from '@stowage/common/rpc/context';
import type { FastifyInstance, RouteOptions } from 'fastify';

/** Who may use a route: anybody, or a user whose role is at least this one. */
export type Access = 'public' | Role;

/** What a request header means; with a pattern where its form is checked. */
export type RequestHeader = string | { description: string; pattern?: string; required?: boolean };

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Declared beside each route; the start fails where it is missing. */
    access?: Access;
    /** Problems beyond those that every route can give, for the OpenAPI description. */
    problems?: readonly ErrorCode[];
    /** Takes an Idempotency-Key. */
    idempotent?: boolean;
    /** Request headers that the handler reads itself, for the OpenAPI description: name and meaning. */
    requestHeaders?: Readonly<Record<string, RequestHeader>>;
    /** Takes a body of bytes that no parser touches, for the OpenAPI description. */
    takesBytes?: boolean;
    /** A write that is allowed while the service is read-only. */
    allowedReadOnly?: boolean;
    /** Takes as long as the client asked for: no limit on silence once its body is there. */
    waits?: boolean;
  }
}

/** Whether a role suffices. */
export function allows(access: Role, role: Role): boolean {
  return roles.indexOf(role) >= roles.indexOf(access);
}

const writeMethods = new Set(['POST', 'PUT', 'PATCH', 'DELETE']);

export function isWrite(method: string): boolean {
  return writeMethods.has(method);
}

/** Refuses to start with a route that does not say who may use it. */
export function requireAccess(app: FastifyInstance): void {
  const routes: RouteOptions[] = [];
  app.addHook('onRoute', (route) => {
    routes.push(route);
  });
  app.addHook('onReady', async () => {
    const open = routes.filter((route) => route.config?.access === undefined && route.method !== 'OPTIONS');
    const names = open.map((route) => `${String(route.method)} ${route.url}`);
    if (names.length > 0) throw new Error(`these routes declare no access: ${names.join(', ')}`);
  });
}

/** Answers 405 with Allow where the address exists for other methods, else 404. */
export function addNotFound(app: FastifyInstance): void {
  const known: { pattern: RegExp; methods: Set<string> }[] = [];
  app.addHook('onRoute', (route) => {
    const source = route.url.replace(/[.*+?^${}()|[\]\\]/g, '\\$&').replace(/:[a-z_]+/g, '[^/]+');
    const methods = (Array.isArray(route.method) ? route.method : [route.method]).map(String);
    const pattern = new RegExp(`^${source}$`);
    const present = known.find((entry) => entry.pattern.source === pattern.source);
    if (present) for (const method of methods) present.methods.add(method);
    else known.push({ pattern, methods: new Set(methods) });
  });
  const allowedAt = (url: string): string[] => {
    const path = url.split('?', 1)[0] ?? '';
    const own = known.find(({ pattern }) => pattern.source === exactly(path));
    const matching = own ? [own] : known.filter(({ pattern }) => pattern.test(path));
    return [...new Set(matching.flatMap(({ methods }) => [...methods]))];
  };
  const refuse = (url: string): never => {
    const allow = allowedAt(url);
    if (allow.length === 0) throw new AppError('not_found', 'There is nothing at this address.');
    throw new AppError('method_not_allowed', `Use ${allow.join(' or ')} here.`, { members: { allow } });
  };
  // Before the body is looked at: whatever it is, there is nobody to take it.
  app.addHook('preParsing', async (request) => {
    if (request.is404 && request.method !== 'OPTIONS') refuse(request.url);
  });
  app.setNotFoundHandler(async (request, reply) => {
    const allow = allowedAt(request.url);
    if (request.method !== 'OPTIONS' || allow.length === 0) return refuse(request.url);
    return reply.code(204).header('allow', allow.join(', ')).send();
  });
}

/** The pattern of a route without parameters. */
function exactly(path: string): string {
  return new RegExp(`^${path.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}$`).source;
}
