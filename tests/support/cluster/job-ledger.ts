import { expectStatus, until } from '../client.ts';
import type { Client, Json } from '../client.ts';
import type { Kept } from './load.ts';
import { defaultBackend, makeBackend } from '../backends.ts';
import { readPages } from '../tree.ts';

const settleMs = 180_000;

/** What became of the jobs of a time. */
export interface JobsAfter {
  /** By kind and state. */
  counts: Record<string, number>;
  /** Files without the copy that a job had to make, and jobs that failed or never ended. */
  lost: string[];
}

/** Has every file copied to a second backend by a job of its own, so that a job that is lost shows. */
export class JobLedger {
  readonly #root: Client;

  private constructor(root: Client) {
    this.#root = root;
  }

  /** From here on each upload is followed by a job. */
  static async open(root: Client): Promise<JobLedger> {
    const first = await defaultBackend(root);
    const second = await makeBackend(root);
    const body = { backends: [first['id'], second['id']], replicas: 2, sync_replicas: 1 };
    expectStatus(await root.call('PUT', '/api/policies/placement/default', { body }), 200);
    return new JobLedger(root);
  }

  /** Waits until every file has both copies; gives what did not become of it. */
  async settle(kept: readonly Kept[]): Promise<JobsAfter> {
    const missing = async (): Promise<string[]> => {
      const short: string[] = [];
      for (const { id } of kept) {
        const { json } = expectStatus(await this.#root.get(`/api/files/${id}`), 200);
        if (json['placement'].replicas.filter(isThere).length < 2) short.push(`${id} has not both copies`);
      }
      return short;
    };
    await until(async () => (await missing()).length === 0, settleMs).catch(() => undefined);
    const { items } = await readPages(this.#root, '/api/jobs?limit=1000');
    const counts: Record<string, number> = {};
    for (const { kind, state } of items) counts[`${kind} ${state}`] = (counts[`${kind} ${state}`] ?? 0) + 1;
    const failed = items
      .filter(({ state }) => state === 'failed')
      .map((job) => `${job['kind']}: ${String(job['error']?.detail)}`);
    return { counts, lost: [...(await missing()), ...failed] };
  }
}

function isThere(replica: Json): boolean {
  return replica['state'] === 'available';
}
