import { sql } from 'kysely';
import type { QueryExecutorProvider } from 'kysely';
import type { NotificationListener } from '@stowage/common/database/notification-listener';
import type { OpenBackends } from './open-backend.ts';

const channel = 'stowage_backends';

/** Tells every process of this service, once the transaction commits, that a backend is not what it was. */
export async function tellOfChange(trx: QueryExecutorProvider, backendId: string): Promise<void> {
  await sql`select pg_notify(${channel}, ${backendId})`.execute(trx);
}

/** From now on a backend that was changed by another process is looked at again before it is used. */
export function hearOfChanges(notifications: NotificationListener, backends: OpenBackends): void {
  notifications.subscribe(channel, (backendId) => backends.doubt(backendId));
}
