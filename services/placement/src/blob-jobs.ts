import { enqueueJob } from '@stowage/common/jobs/enqueue';
import { inTransaction, query } from '@stowage/common/database/transaction';
import { unavailable } from '@stowage/common/errors';
import { PostponedJob } from '@stowage/common/jobs/job';
import type { ClaimedJob, JobHandler } from '@stowage/common/jobs/job';
import { removalsHeldForMs } from '@stowage/common/jobs/removal-hold';
import { backgroundContext } from '@stowage/common/rpc/context';
import type { Client } from '@stowage/common/rpc/contract';
import { VerifyResult } from '@stowage/proto/stowage/backend_registry/v1/blob';
import type { BlobService } from '@stowage/proto/stowage/backend_registry/v1/blob';
import type { ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import { ReplicaState } from '@stowage/proto/stowage/catalog/v1/node';
import type { Kysely } from 'kysely';
import { BackendBusy } from './backend-slots.ts';
import type { BackendSlots } from './backend-slots.ts';
import { deleteTimeoutMs } from './deadlines.ts';
import type { ReadTimeout } from './deadlines.ts';
import { sizeParam, textParam } from './job-params.ts';
import type { Tables } from './tables.ts';

interface Services {
  content: Client<typeof ContentService>;
  blobs: Client<typeof BlobService>;
}

/** A hold may be lifted early: then nothing waits longer than this. */
const holdLookMs = 3_600_000;

/**
 * Removes the replicas of blobs that no file refers to; each step may be repeated. A sick backend keeps its own only.
 * Put off while removals are held, but for what an admin gave the word for; that is asked before each blob.
 */
export function removeBlob(db: Kysely<Tables>, { content, blobs }: Services, slots: BackendSlots): JobHandler {
  return async (job, { signal }) => {
    const context = backgroundContext(signal, job.id);
    const failures: unknown[] = [];
    let removed = 0;
    for (const blobId of blobsOf(job)) {
      signal.throwIfAborted();
      const heldForMs = job.params['despite_hold'] === true ? 0 : await query(() => removalsHeldForMs(db));
      if (heldForMs > 0) throw new PostponedJob(Math.min(heldForMs, holdLookMs));
      const claimed = performance.now();
      const { replicas } = await content.claimBlobRemoval({ blobId }, context);
      for (const { backendId, key } of replicas) {
        try {
          await slots.run({ backendId, from: null, size: 0 }, async () => {
            // After a while an import may want the content again: a process that stood still must not remove that.
            const timeoutMs = deleteTimeoutMs - (performance.now() - claimed);
            if (timeoutMs <= 0) throw unavailable('It is too late for this removal: it was claimed too long ago.');
            return blobs.deleteBlob({ backendId, key }, context, { timeoutMs });
          });
          await content.forgetReplica({ blobId, backendId }, context);
          removed += 1;
        } catch (error) {
          failures.push(error);
        }
      }
    }
    if (failures.length > 0) throw putOff(failures[0]);
    return { removed };
  };
}

/** One blob, or those that a backend listed and nothing knew. */
function blobsOf(job: ClaimedJob): string[] {
  const unknown = job.params['unknown_blobs'];
  return Array.isArray(unknown) ? unknown.filter((id) => typeof id === 'string') : [textParam(job, 'blob_id')];
}

const verdicts = new Map<VerifyResult, { state: ReplicaState; verdict: string }>([
  [VerifyResult.GOOD, { state: ReplicaState.AVAILABLE, verdict: 'good' }],
  [VerifyResult.CORRUPT, { state: ReplicaState.CORRUPT, verdict: 'corrupt' }],
  [VerifyResult.MISSING, { state: ReplicaState.MISSING, verdict: 'missing' }],
]);

/** Reads a replica from end to end, notes what that showed, and queues the repair of a bad one. */
export function verifyBlob(
  db: Kysely<Tables>,
  { content, blobs, readTimeoutMs }: Services & { readTimeoutMs: ReadTimeout },
  slots: BackendSlots,
): JobHandler {
  return async (job, { signal }) => {
    const context = backgroundContext(signal, job.id);
    const [blobId, backendId, key] = [textParam(job, 'blob_id'), textParam(job, 'backend_id'), textParam(job, 'key')];
    const sha256 = Buffer.from(textParam(job, 'sha256'), 'hex');
    const wanted = { backendId, key, size: sizeParam(job), sha256 };
    let begun = performance.now();
    const { result } = await slots
      .run({ backendId, from: null, size: Number(wanted.size) }, () => {
        begun = performance.now();
        return blobs.verifyBlob(wanted, context, { timeoutMs: readTimeoutMs(wanted.size) });
      })
      .catch((error: unknown) => {
        throw putOff(error);
      });
    const found = verdicts.get(result);
    if (!found) throw new Error(`backend-registry gave the unknown verdict ${result}`);
    const readAgoMs = BigInt(Math.ceil(performance.now() - begun));
    await content.settleReplica({ blobId, backendId, state: found.state, readAgoMs }, context);
    if (found.state !== ReplicaState.AVAILABLE) {
      const repair = { kind: 'place_blob', params: { blob_id: blobId }, dedupeKey: blobId } as const;
      await inTransaction(db, (trx) => enqueueJob(trx, repair));
    }
    return { verdict: found.verdict };
  };
}

/** What fails a job; where its backend only has enough to do, that is no attempt. */
function putOff(error: unknown): unknown {
  return error instanceof BackendBusy ? new PostponedJob(error.delayMs) : error;
}
