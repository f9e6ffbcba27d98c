import type { Kysely } from 'kysely';
import { query } from '@stowage/common/database/transaction';
import { AppError } from '@stowage/common/errors';
import { isId } from '@stowage/common/ids';
import type { BackendRow, Tables } from './tables.ts';

/** Throws `not_found`. */
export async function findBackend(db: Kysely<Tables>, id: string): Promise<BackendRow> {
  const row = isId(id)
    ? await query(() => db.selectFrom('registry.backends').selectAll().where('id', '=', id).executeTakeFirst())
    : undefined;
  return row ?? noBackend();
}

export function noBackend(): never {
  throw new AppError('not_found', 'There is no such backend.');
}
