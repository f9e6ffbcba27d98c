import { createHash, randomUUID } from 'node:crypto';
import { chmod, mkdtemp, readFile, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import pg from 'pg';
import { migrate } from '@stowage/common/database/migrate';
import { startEmbeddedPostgres } from '@stowage/launcher/embedded-postgres';

/** A fresh, migrated database that nobody else uses. */
export interface TestDatabase {
  /** The superuser's URL. */
  url: string;
  /** Removes it; connections that are still open are cut. */
  close(): Promise<void>;
}

const migrationsFolder = path.join(import.meta.dirname, '../../services/common/src/database/migrations');

/** One key for all processes that make the template on one server; advisory locks are per database. */
const templateLock = 7_263_401;

/**
 * Gives a test its own migrated database: a copy of a template on the server that STOWAGE_TEST_POSTGRES_URL names
 * (some 40 ms), else on an embedded server of its own that `close` stops (some 0.7 s).
 */
export async function startTestDatabase(): Promise<TestDatabase> {
  const shared = process.env['STOWAGE_TEST_POSTGRES_URL'];
  return shared ? databaseOn(shared) : databaseOfItsOwn();
}

async function databaseOn(server: string): Promise<TestDatabase> {
  const name = `test_${randomUUID().replaceAll('-', '')}`;
  await asAdmin(server, async (admin) => {
    const template = await ensureTemplate(server, admin);
    await admin.query(`create database ${name} template ${template}`);
  });
  const drop = async (): Promise<void> => {
    await asAdmin(server, (admin) => admin.query(`drop database if exists ${name} with (force)`));
  };
  return { url: withDatabase(server, name), close: drop };
}

async function databaseOfItsOwn(): Promise<TestDatabase> {
  const folder = await mkdtemp(path.join(tmpdir(), 'stowage-test-'));
  // mkdtemp makes it 0700, where the account that PostgreSQL runs as under root could not enter.
  await chmod(folder, 0o755);
  const directory = path.join(folder, 'postgres');
  const server = await startEmbeddedPostgres({ directory, log: () => undefined, settings: { fsync: 'off' } });
  const close = async (): Promise<void> => {
    await server.stop();
    await rm(folder, { recursive: true, force: true });
  };
  try {
    await migrate(server.url);
  } catch (error) {
    await close();
    throw error;
  }
  return { url: server.url, close };
}

/** Made under another name and renamed when it is whole, so that a run that dies midway leaves nothing to trip over. */
async function ensureTemplate(server: string, admin: pg.Client): Promise<string> {
  const template = `stowage_template_${await schemaHash()}`;
  await admin.query('select pg_advisory_lock($1)', [templateLock]);
  try {
    const { rowCount } = await admin.query('select from pg_database where datname = $1', [template]);
    if (rowCount === 0) {
      const building = `${template}_building`;
      await admin.query(`drop database if exists ${building} with (force)`);
      await admin.query(`create database ${building}`);
      await migrate(withDatabase(server, building));
      await admin.query(`alter database ${building} rename to ${template}`);
    }
  } finally {
    await admin.query('select pg_advisory_unlock($1)', [templateLock]);
  }
  return template;
}

/** Over the text of the migrations, so that a server that outlives an edit does not serve the schema of before. */
async function schemaHash(): Promise<string> {
  const hash = createHash('sha256');
  for (const file of (await readdir(migrationsFolder)).sort()) {
    hash.update(file).update(await readFile(path.join(migrationsFolder, file)));
  }
  return hash.digest('hex').slice(0, 16);
}

async function asAdmin<R>(server: string, work: (admin: pg.Client) => Promise<R>): Promise<R> {
  const admin = new pg.Client({ connectionString: server, connectionTimeoutMillis: 10_000 });
  await admin.connect();
  try {
    return await work(admin);
  } finally {
    await admin.end();
  }
}

function withDatabase(server: string, name: string): string {
  const url = new URL(server);
  url.pathname = `/${name}`;
  return url.href;
}
