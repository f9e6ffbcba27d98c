import type pg from 'pg';

/** How often PostgreSQL looks, during a statement, whether this process still listens; in ms. */
const livenessMs = 1_000;

/**
 * Ends what a connection is running once `signal` aborts, by closing it: PostgreSQL sees that within 1 s, and rolls back. To
 * cancel a statement from another connection takes a right that the role of a service does not have. Gives a function that
 * ends this; after it nothing is closed any more.
 */
export function cancelOnAbort(client: pg.PoolClient, signal: AbortSignal): () => Promise<void> {
  const prepared = client.query(`set client_connection_check_interval = ${livenessMs}`).catch(() => undefined);
  const close = (): void => void client.end().catch(() => undefined);
  signal.addEventListener('abort', close);
  if (signal.aborted) close();
  return async () => {
    signal.removeEventListener('abort', close);
    await prepared;
  };
}
