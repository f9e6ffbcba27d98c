import pg from 'pg';
import type { StatementsJob } from './jobs.ts';
import { inTurn, Latencies } from './latencies.ts';
import { timed } from './run.ts';
import type { Outcome } from './run.ts';

/** Runs one prepared statement again and again, each in a transaction of its own. */
export async function runStatements(job: StatementsJob): Promise<Outcome> {
  const clients = Array.from({ length: job.connections }, () => new pg.Client({ connectionString: job.url }));
  await Promise.all(clients.map((client) => client.connect()));
  const latencies = new Latencies(job.count);
  try {
    return await timed(latencies, job.count, async () => {
      await inTurn(clients, job.count, async (client, index) => {
        const start = performance.now();
        const values = [...(job.values[index % job.values.length] ?? [])];
        await client.query({ name: 'statement', text: job.text, values });
        latencies.note(start);
      });
      return { bytes: 0 };
    });
  } finally {
    await Promise.all(clients.map((client) => client.end()));
  }
}
