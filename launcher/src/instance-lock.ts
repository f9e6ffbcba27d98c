import pg from 'pg';
import { StartupError } from '@stowage/common/runtime/run-process';
import type { Logger } from '@stowage/common/runtime/logger';

/** Any number of ours: advisory locks of one database share one space. */
const lockKey = 7_869_623;
const patienceMs = 2_000;
const pollMs = 100;
const reconnectMs = 500;

/**
 * Holds, for as long as this process lives, the right to be the one standalone Stowage of a database. PostgreSQL gives
 * it back by itself when the process dies, however it dies.
 */
export class InstanceLock {
  readonly #url: string;
  readonly #logger: Logger;
  #client: pg.Client | null = null;
  #closed = false;

  constructor(url: string, logger: Logger) {
    this.#url = url;
    this.#logger = logger;
  }

  /** Throws StartupError where another process has it. */
  async acquire(dataDir: string): Promise<void> {
    const deadline = Date.now() + patienceMs;
    while (!(await this.#try())) {
      if (Date.now() > deadline) {
        throw new StartupError(
          `Another Stowage is running with the data folder ${dataDir}: stop it first, or set STOWAGE_DATA_DIR to another folder.`,
        );
      }
      await new Promise((resolve) => setTimeout(resolve, pollMs));
    }
  }

  async release(): Promise<void> {
    this.#closed = true;
    await this.#client?.end();
  }

  async #try(): Promise<boolean> {
    const client = new pg.Client({
      connectionString: this.#url,
      connectionTimeoutMillis: 5_000,
      application_name: 'stowage-lock',
    });
    client.on('error', (error) =>
      this.#logger.warn({ err: error }, 'The connection that holds the instance lock broke.'),
    );
    await client.connect();
    const { rows } = await client.query<{ held: boolean }>('select pg_try_advisory_lock($1) as held', [lockKey]);
    if (rows[0]?.held !== true) {
      await client.end();
      return false;
    }
    client.on('end', () => this.#retake());
    this.#client = client;
    return true;
  }

  /** A database that restarts forgets the lock. */
  #retake(): void {
    if (this.#closed) return;
    setTimeout(() => void this.#try().catch(() => this.#retake()), reconnectMs);
  }
}
