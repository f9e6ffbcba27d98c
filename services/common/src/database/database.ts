import { Kysely, PostgresAdapter, PostgresDialect, PostgresIntrospector, PostgresQueryCompiler } from 'kysely';
import pg from 'pg';
import type { Logger } from '../runtime/logger.ts';
import { observePools } from './pool-metrics.ts';
import { PreparedStatements } from './prepared-statements.ts';
import { SharedReads } from './shared-reads.ts';
import { endWhenSilent } from './silent-connections.ts';

/** The database as one service sees it: a pool whose connections have that service's role. */
export interface Database {
  pool: pg.Pool;
  reads: SharedReads;
  /** For work on all of the metadata: few connections, whose statements may take minutes and read whole tables. */
  bulk: pg.Pool;
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
const bulk = { connections: 4, statementTimeoutMs: 900_000, idleInTransactionMs: 60_000 } as const;

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
    // A plan is kept that was made while its table was small: in a new installation it would read whole tables for a
    // row until they are first analysed, a minute and 20,000 files later.
    '-c enable_seqscan=off',
    // What that makes of the cost of a table of one row, which has no index, would have PostgreSQL compile the plan of
    // every request, for 40 ms of CPU each. The embedded one can't, those of distributions can.
    '-c jit=off',
  ];
  const connection = {
    connectionString: options.url,
    application_name: `stowage-${options.service}`,
    connectionTimeoutMillis: 5_000,
    query_timeout: statementTimeoutMs + 2_000,
  };
  const pool = new pg.Pool({
    ...connection,
    max: options.connections,
    options: guards.join(' '),
    idleTimeoutMillis: 30_000,
  });
  const statements = new PreparedStatements();
  pool.on('connect', (client) => {
    endWhenSilent(client);
    statements.use(client);
  });
  surviveBreaks(pool, options.logger);
  const readOnly = [...guards, '-c default_transaction_read_only=on'];
  const reads = new SharedReads({ ...connection, options: readOnly.join(' ') }, statements);
  const bulkPool = openBulk(options);
  const endObserving = observePools(options.service, { main: pool, bulk: bulkPool });
  return {
    pool,
    reads,
    bulk: bulkPool,
    async close() {
      endObserving();
      await Promise.all([pool.end(), reads.close(), bulkPool.end()]);
    },
  };
}

function openBulk({ url, service, logger }: DatabaseOptions): pg.Pool {
  const guards = [
    `-c role=${roleOf(service)}`,
    `-c statement_timeout=${bulk.statementTimeoutMs}`,
    '-c lock_timeout=5000',
    `-c idle_in_transaction_session_timeout=${bulk.idleInTransactionMs}`,
    '-c work_mem=64MB',
  ];
  const pool = new pg.Pool({
    connectionString: url,
    application_name: `stowage-${service}-bulk`,
    connectionTimeoutMillis: 5_000,
    max: bulk.connections,
    // Its statements may take long: only the network can tell that the answer to one was lost.
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
    options: guards.join(' '),
    idleTimeoutMillis: 5_000,
  });
  surviveBreaks(pool, logger);
  return pool;
}

/** The pool hears a connection only while it is idle; one that breaks in a transaction must not end the process either. */
function surviveBreaks(pool: pg.Pool, logger: Logger): void {
  pool.on('connect', (client) => client.on('error', ignore));
  pool.on('error', (error) => logger.warn({ err: error }, 'An idle database connection broke.'));
}

/** A query builder over a pool; `T` names the tables that the service may use. */
export function queryBuilder<T>({ pool }: Pick<Database, 'pool'>): Kysely<T> {
  return new Kysely<T>({ dialect: new PostgresDialect({ pool }) });
}

/** As queryBuilder, over the one connection of SharedReads: for short statements that only read. */
export function readBuilder<T>({ reads }: Pick<Database, 'reads'>): Kysely<T> {
  return new Kysely<T>({
    dialect: {
      createDriver: () => reads,
      createAdapter: () => new PostgresAdapter(),
      createIntrospector: (db) => new PostgresIntrospector(db),
      createQueryCompiler: () => new PostgresQueryCompiler(),
    },
  });
}

/** Whoever waits for a query on that connection is told by its failure. */
function ignore(): void {}
