import { PermanentJobError } from '@stowage/common/jobs/job';
import type { ClaimedJob, JobHandler } from '@stowage/common/jobs/job';
import { backgroundContext } from '@stowage/common/rpc/context';
import type { Client } from '@stowage/common/rpc/contract';
import { VerifyResult } from '@stowage/proto/stowage/backend_registry/v1/blob';
import type { BlobService } from '@stowage/proto/stowage/backend_registry/v1/blob';
import type { ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import { ReplicaState } from '@stowage/proto/stowage/catalog/v1/node';

interface Services {
  content: Client<typeof ContentService>;
  blobs: Client<typeof BlobService>;
}

/** A backend that reads slower than this is taken for one that hangs. */
const slowestBytesPerMs = 2_048;
const verifyMarginMs = 10 * 60_000;
const deleteTimeoutMs = 60_000;

/** Removes the replicas of a blob that no file refers to; each step may be repeated. A sick backend keeps its own only. */
export function removeBlob({ content, blobs }: Services): JobHandler {
  return async (job, { signal }) => {
    const context = backgroundContext(signal, job.id);
    const blobId = textParam(job, 'blob_id');
    const { replicas } = await content.claimBlobRemoval({ blobId }, context);
    const failures: unknown[] = [];
    for (const { backendId, key } of replicas) {
      try {
        await blobs.deleteBlob({ backendId, key }, context, { timeoutMs: deleteTimeoutMs });
        await content.forgetReplica({ blobId, backendId }, context);
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
    return { removed: replicas.length };
  };
}

const verdicts = new Map<VerifyResult, { state: ReplicaState; verdict: string }>([
  [VerifyResult.GOOD, { state: ReplicaState.AVAILABLE, verdict: 'good' }],
  [VerifyResult.CORRUPT, { state: ReplicaState.CORRUPT, verdict: 'corrupt' }],
  [VerifyResult.MISSING, { state: ReplicaState.MISSING, verdict: 'missing' }],
]);

/** Reads a replica from end to end and notes what that showed. */
export function verifyBlob({ content, blobs }: Services): JobHandler {
  return async (job, { signal }) => {
    const context = backgroundContext(signal, job.id);
    const [blobId, backendId, key] = [textParam(job, 'blob_id'), textParam(job, 'backend_id'), textParam(job, 'key')];
    const sha256 = Buffer.from(textParam(job, 'sha256'), 'hex');
    const wanted = { backendId, key, size: sizeParam(job), sha256 };
    const timeoutMs = verifyMarginMs + Math.ceil(Number(wanted.size) / slowestBytesPerMs);
    const { result } = await blobs.verifyBlob(wanted, context, { timeoutMs });
    const found = verdicts.get(result);
    if (!found) throw new Error(`backend-registry gave the unknown verdict ${result}`);
    await content.settleReplica({ blobId, backendId, state: found.state }, context);
    return { verdict: found.verdict };
  };
}

function textParam(job: ClaimedJob, name: string): string {
  const value = job.params[name];
  if (typeof value !== 'string') throw new PermanentJobError(`the parameter ${name} is missing`);
  return value;
}

/** Written as a string or number: sizes fit both. */
function sizeParam(job: ClaimedJob): bigint {
  const value = job.params['size'];
  if (typeof value !== 'string' && typeof value !== 'number')
    throw new PermanentJobError('the parameter size is missing');
  return BigInt(value);
}
