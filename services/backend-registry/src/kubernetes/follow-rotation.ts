import type { Kysely } from 'kysely';
import { query } from '@stowage/common/database/transaction';
import { AppError } from '@stowage/common/errors';
import type { Logger } from '@stowage/common/runtime/logger';
import type { OpenBackends } from '../open-backend.ts';
import type { Tables } from '../tables.ts';

interface Needs {
  db: Kysely<Tables>;
  backends: OpenBackends;
  logger: Logger;
}

/** Has the backends that refer to a Secret opened anew, and checked: what is under way goes on with what it began with. */
export async function followRotation({ db, backends, logger }: Needs, name: string): Promise<void> {
  try {
    const rows = await query(() =>
      db
        .selectFrom('registry.backend_secrets')
        .select('backend_id as id')
        .distinct()
        .where('ref_name', '=', name)
        .execute(),
    );
    for (const { id } of rows) backends.doubt(id);
    for (const { id } of rows) await backends.check(id, 'decides').catch(unlessDeleted);
  } catch (error) {
    // The next use of each finds by itself that its store was opened with other values.
    logger.warn({ err: error, secret: name }, 'Backends could not be checked after their Kubernetes Secret changed.');
  }
}

function unlessDeleted(error: unknown): void {
  if (!(error instanceof AppError) || error.code !== 'not_found') throw error;
}
