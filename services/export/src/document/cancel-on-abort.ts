import type pg from 'pg';

/**
 * Cancels what a connection is running once `signal` aborts, by another connection of the pool: closing a connection does
 * not end its statement. Gives a function that ends this; after it nothing is cancelled any more.
 */
export function cancelOnAbort(pool: pg.Pool, client: pg.PoolClient, signal: AbortSignal): () => Promise<void> {
  let cancelling: Promise<unknown> = Promise.resolve();
  const pid = client.query<{ pid: number }>('select pg_backend_pid() as pid');
  pid.catch(() => undefined);
  const cancel = (): void => {
    cancelling = pid
      .then(({ rows }) => pool.query('select pg_cancel_backend($1)', [rows[0]?.pid]))
      .catch(() => undefined);
  };
  signal.addEventListener('abort', cancel);
  if (signal.aborted) cancel();
  return async () => {
    signal.removeEventListener('abort', cancel);
    await cancelling;
  };
}
