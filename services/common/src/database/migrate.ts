import { Kysely, PostgresDialect, sql } from 'kysely';
import { Migrator } from 'kysely/migration';
import type { Migration } from 'kysely/migration';
import pg from 'pg';
import { StartupError } from '../runtime/run-process.ts';
import * as roles from './migrations/0001-roles.ts';
import * as registry from './migrations/0002-registry.ts';
import * as catalog from './migrations/0003-catalog.ts';
import * as upload from './migrations/0004-upload.ts';
import * as placement from './migrations/0005-placement.ts';
import * as identity from './migrations/0006-identity.ts';
import * as jobs from './migrations/0007-jobs.ts';
import * as shortUploads from './migrations/0008-short-uploads.ts';
import * as loginAttempts from './migrations/0009-login-attempts.ts';
import * as backends from './migrations/0010-backends.ts';
import * as outboxRelay from './migrations/0011-outbox-relay.ts';
import * as placementRuns from './migrations/0012-placement.ts';
import * as wantedPlaces from './migrations/0013-wanted-places.ts';
import * as scrub from './migrations/0014-scrub.ts';
import * as compare from './migrations/0015-compare.ts';
import * as usablePlaces from './migrations/0016-usable-places.ts';
import * as knownUploads from './migrations/0017-known-uploads.ts';
import * as lateRemovals from './migrations/0018-late-removals.ts';
import * as exports from './migrations/0020-export.ts';
import * as exportJobs from './migrations/0021-export-jobs.ts';
import * as restorePlans from './migrations/0023-restore-plans.ts';
import * as imports from './migrations/0024-import.ts';
import * as integrity from './migrations/0025-integrity.ts';
import * as telemetry from './migrations/0026-telemetry.ts';
import * as secretRefs from './migrations/0027-secret-refs.ts';

/** The one history of the one database; a name is never changed or reused. */
export const migrations: Record<string, Migration> = {
  '0001-roles': roles,
  '0002-registry': registry,
  '0003-catalog': catalog,
  '0004-upload': upload,
  '0005-placement': placement,
  '0006-identity': identity,
  '0007-jobs': jobs,
  '0008-short-uploads': shortUploads,
  '0009-login-attempts': loginAttempts,
  '0010-backends': backends,
  '0011-outbox-relay': outboxRelay,
  '0012-placement': placementRuns,
  '0013-wanted-places': wantedPlaces,
  '0014-scrub': scrub,
  '0015-compare': compare,
  '0016-usable-places': usablePlaces,
  '0017-known-uploads': knownUploads,
  '0018-late-removals': lateRemovals,
  '0020-export': exports,
  '0021-export-jobs': exportJobs,
  '0023-restore-plans': restorePlans,
  '0024-import': imports,
  '0025-integrity': integrity,
  '0026-telemetry': telemetry,
  '0027-secret-refs': secretRefs,
};

/**
 * Brings the database at `url` to the present schema; safe beside others that do the same. Gives what it applied.
 * @throws StartupError where the schema is newer than this code: there is no way back.
 */
export async function migrate(url: string): Promise<string[]> {
  const pool = new pg.Pool({ connectionString: url, max: 2, connectionTimeoutMillis: 10_000 });
  // What breaks is told by the query that waits for it.
  pool.on('error', ignore).on('connect', (client) => client.on('error', ignore));
  const db = new Kysely<unknown>({ dialect: new PostgresDialect({ pool }) });
  try {
    await refuseNewer(db);
    const migrator = new Migrator({ db, provider: { getMigrations: async () => migrations } });
    const { error, results } = await migrator.migrateToLatest();
    if (error !== undefined) throw error;
    return (results ?? []).map((result) => result.migrationName);
  } finally {
    await db.destroy();
  }
}

async function refuseNewer(db: Kysely<unknown>): Promise<void> {
  const unknown = [...(await appliedIn(db))].filter((name) => !(name in migrations));
  if (unknown.length === 0) return;
  throw new StartupError(
    `The schema of the database is newer than this version of Stowage, which does not know ${unknown.join(', ')}. ` +
      'Run the newer version again, or restore the backup from before it.',
  );
}

/**
 * Tells whether the schema has all that this code needs; null when it does, else a sentence. One that has more is
 * right: while versions change, the older one works beside it.
 */
export async function schemaMismatch(pool: pg.Pool): Promise<string | null> {
  const applied = await appliedIn(new Kysely<unknown>({ dialect: new PostgresDialect({ pool }) }));
  const missing = Object.keys(migrations).filter((name) => !applied.has(name));
  return missing.length === 0 ? null : `The database lacks ${missing.join(', ')}: run the migrations first.`;
}

async function appliedIn(db: Kysely<unknown>): Promise<ReadonlySet<string>> {
  // Made before the first migration, which lets the services read it.
  const { rows: tables } = await sql<{ readable: boolean | null }>`
    select has_table_privilege(to_regclass('public.kysely_migration'), 'select') as readable`.execute(db);
  if (!tables[0]?.readable) return new Set();
  const { rows } = await sql<{ name: string }>`select name from public.kysely_migration order by name`.execute(db);
  return new Set(rows.map((row) => row.name));
}

function ignore(): void {}
