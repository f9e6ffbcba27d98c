import type { CallContext } from '../rpc/context.ts';
import type { ServiceName } from '../rpc/connections.ts';
import { mayStateUser } from './callers.ts';

/** A call that somebody makes: by which path, and who may use that one. */
export interface Attempt {
  path: string;
  callers: readonly ServiceName[];
  caller: ServiceName | null;
}

/** The context of a call without what its caller may not state; null where it may not make the call at all. */
export function admitted({ path, callers, caller }: Attempt, context: CallContext): CallContext | null {
  if (caller === null || !callers.includes(caller)) return null;
  return mayStateUser(caller, path) ? context : { ...context, actor: null, idempotency: null };
}
