import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import type { Logger } from '../runtime/logger.ts';
import { PreparedStatements } from './prepared-statements.ts';

/** The database as one service sees it: a pool whose connections have that service's role. */
export interface Database {
  pool: pg.Pool;
  close(): Promise<void>;
}

export interface DatabaseOptions {
  url: string;
  /** The service whose role (`stowage_<service>`) limits what the connections may write. */
  service: string;
  connections: number;
  logger: Logger;
}

const statementTimeoutMs = 10_000;

/** `stowage_backend_registry` for `backend-registry`. */
export function roleOf(service: string): string {
  return `stowage_${service.replace('-', '_')}`;
}

/** Opens a pool; connects lazily. Every wait has a limit: connect 5 s, lock 5 s, statement 10 s. */
export function openDatabase(options: DatabaseOptions): Database {
  const guards = [
    `-c role=${roleOf(options.service)}`,
    `-c statement_timeout=${statementTimeoutMs}`,
    '-c lock_timeout=5000',
    '-c idle_in_transaction_session_timeout=30000',
  ];
  const pool = new pg.Pool({
    connectionString: options.url,
    application_name: `stowage-${options.service}`,
    max: options.connections,
    options: guards.join(' '),
    connectionTimeoutMillis: 5_000,
    idleTimeoutMillis: 30_000,
    query_timeout: statementTimeoutMs + 2_000,
  });
  const statements = new PreparedStatements();
  pool.on('connect', (client) => {
    statements.use(client);
    // The pool hears a connection only while it is idle; one that breaks in a transaction must not end the process.
    client.on('error', ignore);
  });
  pool.on('error', (error) => options.logger.warn({ err: error }, 'An idle database connection broke.'));
  return { pool, close: () => pool.end() };
}

/** A query builder over a pool; `T` names the tables that the service may use. */
export function queryBuilder<T>(database: Database): Kysely<T> {
  return new Kysely<T>({ dialect: new PostgresDialect({ pool: database.pool }) });
}

/** Whoever waits for a query on that connection is told by its failure. */
function ignore(): void {}
