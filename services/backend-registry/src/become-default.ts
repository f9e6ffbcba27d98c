import { sql } from 'kysely';
import { validationError } from '@stowage/common/errors';
import type { BackendType } from '@stowage/common/backend-config';
import type { Trx } from './change.ts';
import { tellOfChange } from './change-notice.ts';

/** Throws `validation_failed` for a backend that can't be the default one: uploads land there when nothing else is left. */
export function requireFitForDefault(type: BackendType): void {
  if (type !== 'webdav') return;
  throw validationError([
    { pointer: '/is_default', detail: 'can not be true: uploads can not grow on a WebDAV server' },
  ]);
}

/** One at a time changes which backend is the default one. Taken before the lock of any backend. */
export async function lockDefault(trx: Trx): Promise<void> {
  await sql`select pg_advisory_xact_lock(hashtext('stowage default backend'))`.execute(trx);
}

/** Ends that another backend is the default one, under the lock of `lockDefault`. */
export async function endOtherDefault(trx: Trx, backendId: string): Promise<void> {
  const ended = await trx
    .updateTable('registry.backends')
    .set({ is_default: false, version: sql<string>`version + 1`, updated_at: sql<Date>`now()` })
    .where('is_default', '=', true)
    .where('id', '<>', backendId)
    .returning('id')
    .execute();
  for (const { id } of ended) await tellOfChange(trx, id);
}
