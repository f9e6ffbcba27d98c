import type { Client } from '@stowage/common/rpc/contract';
import { backgroundContext } from '@stowage/common/rpc/context';
import type { Logger } from '@stowage/common/runtime/logger';
import type { BackendService } from '@stowage/proto/stowage/backend_registry/v1/backend';
import type { Kysely } from 'kysely';
import { ensureDefaultPolicy, hasDefaultPolicy } from './policies.ts';
import type { Tables } from './tables.ts';

const pageLimit = 1000;
const retryMs = 500;

/** Makes the default policy, where there is none yet, as soon as backend-registry tells of the default backend; tries until `signal` aborts. */
export async function makeFirstPolicy(
  db: Kysely<Tables>,
  backends: Client<typeof BackendService>,
  logger: Logger,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    try {
      if (await hasDefaultPolicy(db)) return;
      const backendId = await findDefaultBackend(backends, signal);
      if (backendId !== null) return await ensureDefaultPolicy(db, backendId);
    } catch (error) {
      logger.warn({ err: error }, 'The default policy can not be made yet.');
    }
    await pause(retryMs, signal);
  }
}

async function findDefaultBackend(backends: Client<typeof BackendService>, signal: AbortSignal): Promise<string | null> {
  let cursor: string | undefined = '';
  while (cursor !== undefined) {
    const page: Awaited<ReturnType<typeof backends.listBackends>> = await backends.listBackends(
      { limit: pageLimit, cursor },
      backgroundContext(signal),
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
