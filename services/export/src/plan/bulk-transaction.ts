import type pg from 'pg';
import { toDatabaseError } from '@stowage/common/database/database-error';

/** Runs `work` in one transaction on a connection for long work. Errors of PostgreSQL come out as AppError. */
export async function inBulkTransaction<R>(
  bulk: pg.Pool,
  work: (client: pg.PoolClient) => Promise<R>,
  begin = 'begin',
): Promise<R> {
  let client: pg.PoolClient | null = null;
  let whole = false;
  try {
    client = await bulk.connect();
    await client.query(begin);
    const result = await work(client);
    await client.query('commit');
    whole = true;
    return result;
  } catch (error) {
    if (client)
      whole = await client.query('rollback').then(
        () => true,
        () => false,
      );
    throw toDatabaseError(error);
  } finally {
    client?.release(!whole);
  }
}
