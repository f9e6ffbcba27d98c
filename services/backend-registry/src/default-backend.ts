import type { Kysely } from 'kysely';
import path from 'node:path';
import { query } from '@stowage/common/database/transaction';
import { AppError } from '@stowage/common/errors';
import { newId } from '@stowage/common/ids';
import type { Logger } from '@stowage/common/runtime/logger';
import type { OpenBackends } from './open-backend.ts';
import { readMarker } from './stores/identity-marker.ts';
import { guarded } from './stores/local-files.ts';
import type { BackendRow, Tables } from './tables.ts';

interface Needs {
  db: Kysely<Tables>;
  dataDir: string;
  backends: OpenBackends;
  /** What is made where there is no default backend. */
  kind: 'local' | 'none';
  logger: Logger;
}

/**
 * Sets up the default local backend where there is none and one is wanted, or where setting it up was cut short, and checks its marker.
 * Safe beside others that start at the same time. A backend that can't be used does not keep the service from starting:
 * its health tells why.
 *
 * The order makes every crash recoverable. The row comes first, and the database lets one only be the default; the
 * marker second; `marked` last, when the marker was read back. Until then the marker may be written, afterwards never
 * again: a marker that is missing then means that the disk is.
 */
export async function setUpDefaultBackend(needs: Needs): Promise<void> {
  const row = (await findDefault(needs.db)) ?? (needs.kind === 'local' ? await insertDefault(needs) : null);
  if (row === null) return needs.logger.warn('There is no default backend yet: make one through the API.');
  try {
    await needs.backends.recheck(row.id);
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    needs.logger.error({ err: error.cause ?? error, backend_id: row.id }, 'The default backend can not be used.');
  }
}

async function findDefault(db: Kysely<Tables>): Promise<BackendRow | undefined> {
  return query(() => db.selectFrom('registry.backends').selectAll().where('is_default', '=', true).executeTakeFirst());
}

async function insertDefault(needs: Needs): Promise<BackendRow> {
  const rootPath = path.join(needs.dataDir, 'backends', 'local');
  // A directory that outlived its database keeps its id, so that an export of then still fits.
  const id = (await guarded(() => readMarker(rootPath))) ?? newId();
  const row = {
    id,
    name: 'local',
    type: 'local_directory',
    is_default: true,
    config: { root_path: rootPath },
  } as const;
  await query(() =>
    needs.db
      .insertInto('registry.backends')
      .values(row)
      .onConflict((conflict) => conflict.doNothing())
      .execute(),
  );
  const made = await findDefault(needs.db);
  if (!made) throw new Error('another backend has the name "local" and there is no default one');
  return made;
}
