import { setTimeout as wait } from 'node:timers/promises';
import pg from 'pg';
import { endWhenSilent } from '@stowage/common/database/silent-connections';
import { newId } from '@stowage/common/ids';
import type { Logger } from '@stowage/common/runtime/logger';
import { StartupError } from '@stowage/common/runtime/run-process';

/** Any number of ours: advisory locks of one database share one space. */
const lockKey = 7_869_623;
const patienceMs = 2_000;
const pollMs = 100;
const retakeMs = 250;
const answerMs = 5_000;
/** How often the connection is tried: the lock of one that broke unseen may be another's by now. */
const beatMs = 10_000;

/** Whether the lock is ours now, still that of a connection of ours that broke, or another process's. */
type Holder = 'us' | 'our ghost' | 'another';

/**
 * Holds, for as long as this process lives, the right to be the one standalone Stowage of a database. PostgreSQL gives
 * it back by itself when the process dies, however it dies. It does so too when it restarts, and when the connection
 * breaks: the lock is then taken again at once. Where another process was faster, `onLost` is told, and this one has to end.
 */
export class InstanceLock {
  readonly #url: string;
  readonly #logger: Logger;
  readonly #onLost: () => void;
  readonly #name = `stowage-lock ${newId()}`;
  #client: pg.Client | null = null;
  #beat: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(url: string, logger: Logger, onLost: () => void) {
    this.#url = url;
    this.#logger = logger;
    this.#onLost = onLost;
  }

  /** Throws StartupError where another process has it. */
  async acquire(dataDir: string): Promise<void> {
    const deadline = Date.now() + patienceMs;
    while ((await this.#take()) !== 'us') {
      if (Date.now() > deadline) {
        throw new StartupError(
          `Another Stowage is running with the data folder ${dataDir}: stop it first, or set STOWAGE_DATA_DIR to another folder.`,
        );
      }
      await wait(pollMs);
    }
  }

  async release(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#beat);
    await this.#client?.end();
  }

  async #take(): Promise<Holder> {
    const client = new pg.Client({
      connectionString: this.#url,
      connectionTimeoutMillis: answerMs,
      query_timeout: answerMs,
      application_name: this.#name,
    });
    client.on('error', (error) =>
      this.#logger.warn({ err: error }, 'The connection that holds the instance lock broke.'),
    );
    client.on('end', () => this.#onEnd(client));
    endWhenSilent(client);
    try {
      await client.connect();
      const { rows } = await client.query<{ held: boolean }>('select pg_try_advisory_lock($1) as held', [lockKey]);
      if (rows[0]?.held !== true) return await this.#lookAtHolder(client);
      this.#client = client;
      this.#beat = setInterval(() => client.query('select').catch(() => undefined), beatMs);
      return 'us';
    } finally {
      if (this.#client !== client) client.end().catch(() => undefined);
    }
  }

  /** A session of ours that PostgreSQL has not missed yet is ended. */
  async #lookAtHolder(client: pg.Client): Promise<Holder> {
    const { rows } = await client.query<{ name: string }>(
      `select application_name as name, case when application_name = $2 then pg_terminate_backend(pid) end
       from pg_locks join pg_stat_activity using (pid)
       where locktype = 'advisory' and granted and classid = 0 and objid = $1 and objsubid = 1
         and pg_locks.database = (select oid from pg_database where datname = current_database())`,
      [lockKey, this.#name],
    );
    // With no holder it was given back just now.
    return rows.every(({ name }) => name === this.#name) ? 'our ghost' : 'another';
  }

  #onEnd(client: pg.Client): void {
    if (this.#client !== client || this.#closed) return;
    this.#client = null;
    clearInterval(this.#beat);
    void this.#retake();
  }

  /** A database that restarts forgets the lock. */
  async #retake(): Promise<void> {
    while (!this.#closed) {
      // While the database is away nobody else can take it either.
      const holder = await this.#take().catch(() => null);
      if (holder === 'us') return this.#closed ? this.release() : undefined;
      if (holder === 'another') return this.#onLost();
      await wait(retakeMs);
    }
  }
}
