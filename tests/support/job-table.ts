import { randomUUID } from 'node:crypto';
import pg from 'pg';

/** A job as its row says. */
export interface JobRow {
  state: string;
  attempt: number;
  fence: string;
  error_code: string | null;
  finished_at: Date | null;
  lease_until: Date | null;
}

/** Looks at jobs, and puts some there, past the service. */
export class JobTable {
  readonly #client: pg.Client;

  private constructor(client: pg.Client) {
    this.#client = client;
  }

  static async open(databaseUrl: string): Promise<JobTable> {
    const client = new pg.Client({ connectionString: databaseUrl });
    await client.connect();
    return new JobTable(client);
  }

  async close(): Promise<void> {
    await this.#client.end();
  }

  /** Queues a job and wakes the workers; gives its id. */
  async insert(kind: string, params: Record<string, unknown>, maxAttempts = 5): Promise<string> {
    // Ids are of version 7 everywhere.
    const id = randomUUID().replace(/^(.{14})4/, '$17');
    await this.#client.query(
      `insert into jobs.jobs (id, kind, params, max_attempts, run_after)
       values ($1, $2, $3, $4, date_trunc('milliseconds', now()))`,
      [id, kind, JSON.stringify(params), maxAttempts],
    );
    await this.wake();
    return id;
  }

  async wake(): Promise<void> {
    await this.#client.query(`select pg_notify('stowage_jobs', '')`);
  }

  /** How many of a kind wait or run. */
  async unfinished(kind: string): Promise<number> {
    const { rows } = await this.#client.query<{ count: number }>(
      `select count(*)::int as count from jobs.jobs where kind = $1 and state in ('pending', 'running')`,
      [kind],
    );
    return rows[0]?.count ?? 0;
  }

  async read(id: string): Promise<JobRow> {
    const { rows } = await this.#client.query<JobRow>(
      'select state, attempt, fence, error_code, finished_at, lease_until from jobs.jobs where id = $1',
      [id],
    );
    const [row] = rows;
    if (!row) throw new Error(`there is no job ${id}`);
    return row;
  }

  /** The changes of a job's state, oldest first. */
  async events(id: string): Promise<{ state: string; at: Date }[]> {
    const { rows } = await this.#client.query<{ state: string; at: Date }>(
      `select data->>'state' as state, created_at as at from jobs.outbox where data->>'id' = $1 order by position`,
      [id],
    );
    return rows;
  }

  /** What a job that verifies the content of a file is told. */
  async verification(fileId: string): Promise<Record<string, unknown>> {
    const { rows } = await this.#client.query<Record<string, unknown>>(
      `select blob.id as blob_id, replica.backend_id, replica.key, blob.size::text as size,
         encode(blob.sha256, 'hex') as sha256
       from catalog.nodes node join catalog.blobs blob on blob.id = node.blob_id
         join catalog.replicas replica on replica.blob_id = blob.id
       where node.id = $1`,
      [fileId],
    );
    return rows[0] ?? {};
  }
}
