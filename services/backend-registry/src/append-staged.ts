import type { Readable } from 'node:stream';
import { AppError } from '@stowage/common/errors';
import type { CallContext } from '@stowage/common/rpc/context';
import type { AppendStagedRequest } from '@stowage/proto/stowage/backend_registry/v1/blob';
import type { DigestCache } from './digest-cache.ts';
import type { OpenBackends } from './open-backend.ts';
import { contentKey } from './seal-blob.ts';
import type { Append } from './stores/blob-store.ts';

/** Appends a body to staged content and follows its digest; gives the new offset. Errors as AppendStagedRequest says. */
export async function appendStaged(
  needs: { backends: Pick<OpenBackends, 'useAppendable'>; digests: DigestCache },
  request: AppendStagedRequest,
  body: Readable,
  context: CallContext,
): Promise<{ offset: bigint }> {
  const append: Append = {
    stagedId: request.stagedId,
    offset: byteCount(request.offset),
    limit: byteCount(request.limit),
    fence: requireFence(request.fence),
    create: request.create,
    checksum: checksumOf(request),
    observer: needs.digests.observer(contentKey(request.backendId, request.stagedId)),
  };
  const offset = await needs.backends.useAppendable(request.backendId, (store) =>
    store.append(append, body, context.signal),
  );
  return { offset: BigInt(offset) };
}

/** A count of bytes that came as an int64; throws `validation_failed` for one that no file can have. */
export function byteCount(value: bigint): number {
  const count = Number(value);
  if (count < 0 || !Number.isSafeInteger(count)) {
    throw new AppError('validation_failed', 'A count of bytes is out of range.');
  }
  return count;
}

/** Leases count from 0; what is below is ours. */
function requireFence(fence: bigint): bigint {
  if (fence < 0n) throw new AppError('validation_failed', 'A fence is never negative.');
  return fence;
}

function checksumOf(request: AppendStagedRequest): Append['checksum'] {
  const algorithm = request.checksumAlgorithm;
  if (algorithm === '') return null;
  if (algorithm !== 'sha1' && algorithm !== 'sha256') {
    throw new AppError('validation_failed', 'The checksum of a body may be sha1 or sha256.');
  }
  return { algorithm, digest: request.checksum };
}
