import type pg from 'pg';
import type { ClientBase } from 'pg';
import { toDatabaseError } from '@stowage/common/database/database-error';
import { cancelOnAbort } from '../document/cancel-on-abort.ts';

// Writers wait, and are told so after their 5 s; readers go on.
const tables = [
  'catalog.nodes',
  'catalog.blobs',
  'catalog.replicas',
  'placement.policies',
  'placement.policy_backends',
  'registry.backends',
];
const lockTimeoutMs = 30_000;

/**
 * Runs `work` on a connection of its own, while no other process does. Who waits longer than 30 s is told `unavailable`, and so
 * is everybody once `stopping` aborts, as far as nothing is committed. The connection is not used again.
 */
export async function aloneWith<R>(
  bulk: pg.Pool,
  stopping: AbortSignal,
  work: (client: pg.PoolClient) => Promise<R>,
): Promise<R> {
  const client = await bulk.connect().catch(rethrow);
  const stopClosing = cancelOnAbort(client, stopping);
  try {
    await client.query(`set lock_timeout = ${lockTimeoutMs}`);
    await client.query(`select pg_advisory_lock(hashtext('stowage import'))`);
    return await work(client);
  } catch (error) {
    return rethrow(error);
  } finally {
    await stopClosing();
    client.release(true);
  }
}

/**
 * Keeps everybody else from changing the metadata until the transaction ends; whoever reads them goes on. Fails as any
 * lock does that is not to be had in time, and with a deadlock where a writer holds one table and waits for another.
 */
export async function lockMetadata(client: ClientBase): Promise<void> {
  for (const table of tables) await client.query(`lock table ${table} in share row exclusive mode`);
}

function rethrow(error: unknown): never {
  throw toDatabaseError(error);
}
