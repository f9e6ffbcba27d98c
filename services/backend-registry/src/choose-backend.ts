import type { Kysely } from 'kysely';
import { query } from '@stowage/common/database/transaction';
import { AppError, unavailable } from '@stowage/common/errors';
import type { Logger } from '@stowage/common/runtime/logger';
import { withinWait } from '@stowage/common/within-wait';
import type { OpenBackends } from './open-backend.ts';
import type { BlobStore } from './stores/blob-store.ts';
import { isAppendable } from './stores/open-store.ts';
import type { Tables } from './tables.ts';

export interface Wish {
  /** Wished for, in this order. */
  backendIds: readonly string[];
  /** How long the content will get, in bytes; null when that is not known yet. */
  size: number | null;
  /** Just failed to take it. */
  except: readonly string[];
}

export interface Choice {
  backendId: string;
  /** Whether another one is there to take its place. */
  hasAlternative: boolean;
}

/** Content that lands on a backend which is down can't go on: so its marker was found right this lately. */
const freshMs = 2_000;
/** How long a backend may take to show its marker while there are others. */
const patienceMs = 1_000;

interface Needs {
  reads: Kysely<Tables>;
  backends: OpenBackends;
  /** Bytes that stay free on a backend. */
  reserveBytes: number;
  logger: Logger;
}

/**
 * The first wished backend that is enabled, not unhealthy, answers and has room for content that grows, else the default
 * one. Throws `insufficient_storage` where room was all that lacked, else `unavailable`.
 */
export async function chooseBackend(needs: Needs, wish: Wish): Promise<Choice> {
  let full = false;
  const ids = await candidates(needs.reads, wish);
  for (const [index, backendId] of ids.entries()) {
    const isLast = index === ids.length - 1;
    const refusal = await refusalOf(needs, backendId, wish, isLast ? null : patienceMs);
    if (refusal === null) return { backendId, hasAlternative: !isLast };
    full ||= refusal.code === 'insufficient_storage';
  }
  if (full) throw noRoom();
  throw unavailable('No backend can take an upload just now: check the health of the default backend.');
}

async function candidates(reads: Kysely<Tables>, { backendIds: wished, except }: Wish): Promise<string[]> {
  const rows = await query(() =>
    reads
      .selectFrom('registry.backends')
      .select(['id', 'is_default', 'health_status'])
      .where('enabled', '=', true)
      // The last resort is tried whatever is known of it.
      .where((eb) => eb.or([eb('is_default', '=', true), eb('health_status', '<>', 'unhealthy')]))
      .where((eb) => eb.or([eb('is_default', '=', true), ...(wished.length > 0 ? [eb('id', 'in', wished)] : [])]))
      .execute(),
  );
  const defaults = rows.filter((row) => row.is_default).map((row) => row.id);
  const usable = new Map(rows.map((row) => [row.id, row.health_status]));
  const inOrder = [...new Set([...wished, ...defaults])].filter((id) => usable.has(id) && !except.includes(id));
  const isSick = (id: string): boolean => usable.get(id) === 'unhealthy';
  return [...inOrder.filter((id) => !isSick(id)), ...inOrder.filter(isSick)];
}

/** Null where the content can go there, else why not: the next backend may do. */
async function refusalOf(needs: Needs, backendId: string, wish: Wish, waitMs: number | null): Promise<AppError | null> {
  try {
    const store = await openWithin(needs.backends, backendId, waitMs);
    if (!isAppendable(store)) return unavailable('Uploads can not grow on this backend.');
    const wanted = (wish.size ?? 0) + needs.reserveBytes;
    return (await store.freeBytes(wanted)) < wanted ? noRoom() : null;
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    needs.logger.warn({ err: error.cause ?? error, backend_id: backendId }, 'A backend was passed over.');
    return error;
  }
}

async function openWithin(backends: OpenBackends, backendId: string, waitMs: number | null): Promise<BlobStore> {
  const opening = backends.openFresh(backendId, freshMs);
  const store = waitMs === null ? await opening : await withinWait(opening, waitMs);
  if (store === null) throw unavailable('The backend takes too long to answer.');
  return store;
}

function noRoom(): AppError {
  return new AppError('insufficient_storage', 'No backend has room for this upload: free some space and try again.');
}
