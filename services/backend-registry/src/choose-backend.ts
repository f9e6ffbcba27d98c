import type { Kysely } from 'kysely';
import { query } from '@stowage/common/database/transaction';
import { AppError, unavailable } from '@stowage/common/errors';
import type { Logger } from '@stowage/common/runtime/logger';
import type { OpenBackends } from './open-backend.ts';
import { isAppendable } from './stores/open-store.ts';
import type { Tables } from './tables.ts';

export interface Wish {
  /** Wished for, in this order. */
  backendIds: readonly string[];
  /** How long the content will get, in bytes; null when that is not known yet. */
  size: number | null;
}

interface Needs {
  reads: Kysely<Tables>;
  backends: OpenBackends;
  /** Bytes that stay free on a backend. */
  reserveBytes: number;
  logger: Logger;
}

/**
 * The first wished backend that is enabled, not unhealthy, can be used and has room for content that grows, else the
 * default one. Throws `insufficient_storage` where room was all that lacked, else `unavailable`.
 */
export async function chooseBackend(needs: Needs, wish: Wish): Promise<string> {
  let full = false;
  for (const backendId of await candidates(needs.reads, wish.backendIds)) {
    const refusal = await refusalOf(needs, backendId, wish);
    if (refusal === null) return backendId;
    full ||= refusal.code === 'insufficient_storage';
  }
  if (full) throw noRoom();
  throw unavailable('No backend can take an upload just now: check the health of the default backend.');
}

async function candidates(reads: Kysely<Tables>, wished: readonly string[]): Promise<string[]> {
  const rows = await query(() =>
    reads
      .selectFrom('registry.backends')
      .select(['id', 'is_default'])
      .where('enabled', '=', true)
      // The last resort is tried whatever is known of it.
      .where((eb) => eb.or([eb('is_default', '=', true), eb('health_status', '<>', 'unhealthy')]))
      .where((eb) => eb.or([eb('is_default', '=', true), ...(wished.length > 0 ? [eb('id', 'in', wished)] : [])]))
      .execute(),
  );
  const usable = new Set(rows.map((row) => row.id));
  const defaults = rows.filter((row) => row.is_default).map((row) => row.id);
  return [...new Set([...wished, ...defaults])].filter((id) => usable.has(id));
}

/** Null where the content can go there, else why not: the next backend may do. */
async function refusalOf(needs: Needs, backendId: string, wish: Wish): Promise<AppError | null> {
  try {
    const store = await needs.backends.open(backendId);
    if (!isAppendable(store)) return unavailable('Uploads can not grow on this backend.');
    const wanted = (wish.size ?? 0) + needs.reserveBytes;
    return (await store.freeBytes(wanted)) < wanted ? noRoom() : null;
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    needs.logger.warn({ err: error.cause ?? error, backend_id: backendId }, 'A backend was passed over.');
    return error;
  }
}

function noRoom(): AppError {
  return new AppError('insufficient_storage', 'No backend has room for this upload: free some space and try again.');
}
