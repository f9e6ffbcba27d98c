import { createHash } from 'node:crypto';
import { fromBase64Json, toBase64Json } from '../base64-json.ts';
import { newId } from '../ids.ts';

/** Roles, weakest first: each may do what those before it may. */
export const roles = ['viewer', 'editor', 'admin'] as const;
export type Role = (typeof roles)[number];

/** The user on whose behalf a call is made; only the gateway states one. */
export interface Actor {
  userId: string;
  username: string;
  role: Role;
}

/** A client's idempotency key with all that makes it the same request: user (the actor), route and body. */
export interface IdempotencyKey {
  key: string;
  /** Method and concrete path. */
  route: string;
  /** SHA-256 of the body, hex; what a service keeps of it may be another one, made with a key. */
  fingerprint: string;
  /** Those under which the same request may have been kept before. Not sent to other services. */
  earlierFingerprints?: readonly string[];
}

/** What travels with every call between services. */
export interface CallContext {
  requestId: string;
  actor: Actor | null;
  idempotency: IdempotencyKey | null;
  /** Aborted when the caller goes away or the deadline passes. */
  signal: AbortSignal;
}

/** A context for work that no request caused, such as a job. */
export function backgroundContext(signal: AbortSignal, requestId: string = newId()): CallContext {
  return { requestId, actor: null, idempotency: null, signal };
}

export function fingerprintOf(body: unknown): string {
  return createHash('sha256')
    .update(JSON.stringify(body) ?? '')
    .digest('hex');
}

const prefix = 'stowage-';

/** The context as headers of gRPC metadata or of a byte-port request; the deadline travels by itself. */
export function contextToHeaders(context: CallContext): Record<string, string> {
  const headers: Record<string, string> = { [`${prefix}request-id`]: context.requestId };
  if (context.actor) headers[`${prefix}actor`] = toBase64Json(context.actor);
  if (context.idempotency) headers[`${prefix}idempotency`] = toBase64Json(context.idempotency);
  return headers;
}

/** Reads what contextToHeaders wrote. `header` gives a header's value or undefined. */
export function contextFromHeaders(header: (name: string) => string | undefined, signal: AbortSignal): CallContext {
  return {
    requestId: header(`${prefix}request-id`) ?? newId(),
    actor: decodeActor(header(`${prefix}actor`)),
    idempotency: decodeIdempotency(header(`${prefix}idempotency`)),
    signal,
  };
}

/** What can't be read states nobody. */
function decode(value: string | undefined): Record<string, unknown> | null {
  const parsed = value === undefined ? null : fromBase64Json(value);
  return typeof parsed === 'object' && parsed !== null ? { ...parsed } : null;
}

function decodeActor(value: string | undefined): Actor | null {
  const raw = decode(value);
  const role = roles.find((candidate) => candidate === raw?.['role']);
  if (!raw || !role || typeof raw['userId'] !== 'string' || typeof raw['username'] !== 'string') return null;
  return { userId: raw['userId'], username: raw['username'], role };
}

function decodeIdempotency(value: string | undefined): IdempotencyKey | null {
  const raw = decode(value);
  if (!raw || typeof raw['key'] !== 'string') return null;
  if (typeof raw['route'] !== 'string' || typeof raw['fingerprint'] !== 'string') return null;
  return { key: raw['key'], route: raw['route'], fingerprint: raw['fingerprint'] };
}
