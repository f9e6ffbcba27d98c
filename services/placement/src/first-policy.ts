import { unavailable } from '@stowage/common/errors';
import type { Client } from '@stowage/common/rpc/contract';
import { backgroundContext } from '@stowage/common/rpc/context';
import type { Logger } from '@stowage/common/runtime/logger';
import type { BackendService } from '@stowage/proto/stowage/backend_registry/v1/backend';
import type { Kysely } from 'kysely';
import { ensureDefaultPolicy, hasDefaultPolicy } from './policies.ts';
import type { Tables } from './tables.ts';

const pageLimit = 1000;
/** Where a default backend is yet to be made that may be hours. */
const retryMs = { first: 250, most: 4_000 };
const askTimeoutMs = 3_000;

interface Needs {
  db: Kysely<Tables>;
  backends: Client<typeof BackendService>;
  logger: Logger;
}

/**
 * Makes the default policy where there is none yet. False where there is no default backend for it; throws `unavailable`
 * where nobody can tell.
 */
export async function makeFirstPolicy({ db, backends }: Needs, signal: AbortSignal): Promise<boolean> {
  if (await hasDefaultPolicy(db)) return true;
  const backendId = await findDefaultBackend(backends, signal).catch((error: unknown) => {
    throw unavailable('backend-registry has to tell of the default backend before there can be a policy.', error);
  });
  if (backendId === null) return false;
  await ensureDefaultPolicy(db, backendId);
  return true;
}

/** As makeFirstPolicy, until it is made or `signal` aborts. */
export async function keepMakingFirstPolicy(needs: Needs, signal: AbortSignal): Promise<void> {
  for (let waitMs = retryMs.first; !signal.aborted; waitMs = Math.min(waitMs * 2, retryMs.most)) {
    const isMade = await makeFirstPolicy(needs, signal).catch((error: unknown) => {
      needs.logger.warn({ err: error }, 'The default policy can not be made yet.');
      return false;
    });
    if (isMade) return;
    await pause(waitMs, signal);
  }
}

async function findDefaultBackend(
  backends: Client<typeof BackendService>,
  signal: AbortSignal,
): Promise<string | null> {
  let cursor: string | undefined = '';
  while (cursor !== undefined) {
    const page: Awaited<ReturnType<typeof backends.listBackends>> = await backends.listBackends(
      { limit: pageLimit, cursor },
      backgroundContext(signal),
      { timeoutMs: askTimeoutMs },
    );
    const found = page.items.find((backend) => backend.isDefault);
    if (found) return found.id;
    cursor = page.nextCursor;
  }
  return null;
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, ms);
  const onAbort = (): void => resolve();
  signal.addEventListener('abort', onAbort, { once: true });
  await promise;
  clearTimeout(timer);
  signal.removeEventListener('abort', onAbort);
}
