import { Socket } from 'node:net';
import type { CompiledQuery, DatabaseConnection, Driver, QueryResult } from 'kysely';
import pg from 'pg';
import type { PreparedStatements } from './prepared-statements.ts';

/**
 * One connection that any number of readers share: each statement is sent at once behind those before it (pipelined), and
 * those of one turn of the event loop are sent in one write. A write to a connection of one's own wakes a process of
 * PostgreSQL each time, which was 40 % of the CPU of a small request.
 *
 * For short statements that only read and never wait for a lock, as a slow one holds up those behind it. PostgreSQL
 * refuses whatever writes.
 */
export class SharedReads implements Driver, DatabaseConnection {
  readonly #config: pg.ClientConfig;
  readonly #statements: PreparedStatements;
  #lane: Lane | null = null;
  #closed = false;

  constructor(config: pg.ClientConfig, statements: PreparedStatements) {
    this.#config = config;
    this.#statements = statements;
  }

  async executeQuery<R>({ sql, parameters }: CompiledQuery): Promise<QueryResult<R>> {
    if (this.#closed) throw new Error('The database was closed.');
    const lane = (this.#lane ??= this.#newLane());
    await lane.open;
    lane.gather();
    // What a statement gives is for its caller to know, as everywhere in Kysely.
    return lane.client.query<R & pg.QueryResultRow>(sql, [...parameters]);
  }

  /** Waits for the statements that were sent. */
  async close(): Promise<void> {
    this.#closed = true;
    const lane = this.#lane;
    await lane?.open.then(() => lane.client.end()).catch(() => undefined);
  }

  #newLane(): Lane {
    const socket = new Socket();
    const client = new pg.Client({ ...this.#config, pipeline: true, keepAlive: true, stream: () => socket });
    const lane = new Lane(client, socket, this.#statements);
    // Whoever waits for a statement is told by its failure; the next one opens another connection.
    const forget = (): void => {
      if (this.#lane === lane) this.#lane = null;
    };
    client.on('error', forget).on('end', forget);
    lane.open.catch(forget);
    return lane;
  }

  async init(): Promise<void> {}

  async acquireConnection(): Promise<DatabaseConnection> {
    return this;
  }

  async releaseConnection(): Promise<void> {}

  async destroy(): Promise<void> {}

  async beginTransaction(): Promise<void> {
    throw new Error('Readers share their connection: there are no transactions on it.');
  }

  commitTransaction = this.beginTransaction;
  rollbackTransaction = this.beginTransaction;

  // eslint-disable-next-line require-yield -- it has nothing to give
  async *streamQuery(): AsyncIterableIterator<never> {
    throw new Error('Readers share their connection: a stream would hold it up.');
  }
}

/** A connection whose writes of one turn of the event loop go out together. */
class Lane {
  readonly client: pg.Client;
  readonly open: Promise<void>;
  readonly #socket: Socket;
  #gathering = false;

  constructor(client: pg.Client, socket: Socket, statements: PreparedStatements) {
    this.client = client;
    this.#socket = socket;
    this.open = client.connect().then(() => statements.use(client));
  }

  gather(): void {
    if (this.#gathering) return;
    this.#gathering = true;
    this.#socket.cork();
    setImmediate(() => {
      this.#gathering = false;
      this.#socket.uncork();
    });
  }
}
