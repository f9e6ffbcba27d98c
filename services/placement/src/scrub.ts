import { inTransaction } from '@stowage/common/database/transaction';
import { enqueueJob } from '@stowage/common/jobs/enqueue';
import type { JobHandler } from '@stowage/common/jobs/job';
import { backgroundContext } from '@stowage/common/rpc/context';
import type { Client } from '@stowage/common/rpc/contract';
import type { ReplicaService } from '@stowage/proto/stowage/catalog/v1/replica';
import type { Kysely } from 'kysely';
import { loadBackends } from './backend-standing.ts';
import type { Tables } from './tables.ts';

/** Of each backend; with a turn every ten minutes more than four million in thirty days. */
const atOnce = 1_000;

/**
 * Queues the reading of replicas that nobody read whole for `afterMs`, on backends that can be read. One that waits to be
 * read is not queued again.
 */
export function scrub(db: Kysely<Tables>, replicas: Client<typeof ReplicaService>, afterMs: number): JobHandler {
  return async (job, { signal, progress }) => {
    const context = backgroundContext(signal, job.id);
    const readable = [...(await loadBackends(db)).values()].filter(({ health }) => health !== 'unhealthy');
    const wanted = { backendIds: readable.map(({ id }) => id), forMs: BigInt(afterMs), limit: atOnce };
    const { items } = await replicas.listStaleReplicas(wanted, context);
    let queued = 0;
    for (const { blobId, backendId, key, size, sha256 } of items) {
      signal.throwIfAborted();
      const params = {
        blob_id: blobId,
        backend_id: backendId,
        key,
        size: Number(size),
        sha256: Buffer.from(sha256).toString('hex'),
      };
      const reading = { kind: 'verify_blob', params, dedupeKey: `${blobId}/${backendId}` } as const;
      if (await inTransaction(db, (trx) => enqueueJob(trx, reading))) queued += 1;
      progress({ done: queued });
    }
    return { queued };
  };
}
