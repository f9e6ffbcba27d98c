import type { MessageInitShape } from '@bufbuild/protobuf';
import {
  downloadEndpoint,
  appendStaged as appendStagedOperation,
  readBlob,
  uploadEndpoint,
} from '@stowage/common/bytes/operations';
import type { ByteEndpoint } from '@stowage/common/bytes/operations';
import { AppError } from '@stowage/common/errors';
import { endpoint } from '@stowage/common/rpc/contract';
import type { Client, Endpoint, Implementation } from '@stowage/common/rpc/contract';
import type { Logger } from '@stowage/common/runtime/logger';
import { BackendService } from '@stowage/proto/stowage/backend_registry/v1/backend';
import { BlobService } from '@stowage/proto/stowage/backend_registry/v1/blob';
import type { SealBlobRequest, SealBlobResponseSchema } from '@stowage/proto/stowage/backend_registry/v1/blob';
import type { ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import type { Kysely } from 'kysely';
import { appendStaged, byteCount } from './append-staged.ts';
import { getBackend, listBackends } from './backends.ts';
import { chooseBackend } from './choose-backend.ts';
import type { DigestCache } from './digest-cache.ts';
import type { OpenBackends } from './open-backend.ts';
import { contentKey } from './seal-blob.ts';
import type { Seals } from './seal-blob.ts';
import { blobKey } from './stores/keys.ts';
import type { Tables } from './tables.ts';
import { verifyBlob } from './verify-blob.ts';

export interface RegistryParts {
  db: Kysely<Tables>;
  /** For short reading. */
  reads: Kysely<Tables>;
  content: Client<typeof ContentService>;
  backends: OpenBackends;
  digests: DigestCache;
  seals: Seals;
  reserveBytes: number;
  logger: Logger;
}

/** Which function answers which call. */
export function registryEndpoints(parts: RegistryParts): Endpoint[] {
  return [
    endpoint(BackendService, {
      listBackends: (request, context) => listBackends(parts, request, context),
      getBackend: async (request, context) => ({ backend: await getBackend(parts, request.id, context) }),
    }),
    endpoint(BlobService, blobCalls(parts)),
  ];
}

/** Which function answers which request of the byte port. */
export function registryByteEndpoints(parts: RegistryParts): ByteEndpoint[] {
  return [
    uploadEndpoint(appendStagedOperation, (request, body, context) => appendStaged(parts, request, body, context)),
    downloadEndpoint(readBlob, (request, context) => {
      const range = { start: byteCount(request.start), end: byteCount(request.end) };
      return parts.backends.use(request.backendId, (store) => store.read(request.key, range, context.signal));
    }),
  ];
}

function blobCalls(parts: RegistryParts): Implementation<typeof BlobService> {
  return {
    chooseBackend: async ({ backendIds, size }) => ({
      backendId: await chooseBackend(parts, { backendIds, size: size === undefined ? null : byteCount(size) }),
    }),
    createStaged: async ({ backendId, stagedId }) => {
      await parts.backends.use(backendId, (store) => store.createStaged(stagedId));
      return {};
    },
    statStaged: ({ backendId, stagedId }) =>
      parts.backends.use(backendId, async (store) => {
        const offset = await store.stagedOffset(stagedId);
        if (offset === null) throw new AppError('not_found', 'There is no such upload on this backend.');
        return { offset: BigInt(offset) };
      }),
    discardStaged: async ({ backendId, stagedId }) => {
      await (await parts.backends.recheck(backendId)).discard(stagedId);
      parts.digests.forget(contentKey(backendId, stagedId));
      return {};
    },
    sealBlob: (request) => sealBlob(parts.seals, request),
    deleteBlob: async ({ backendId, key }) => {
      await (await parts.backends.recheck(backendId)).delete(key);
      return {};
    },
    verifyBlob: async ({ backendId, key, size, sha256 }, context) => {
      const store = await parts.backends.recheck(backendId);
      return { result: await verifyBlob(store, { key, size: byteCount(size), sha256 }, context.signal) };
    },
    copyBlob: async () => {
      throw new AppError('unavailable', 'Blobs can not be copied between backends yet.');
    },
  };
}

async function sealBlob(
  seals: Seals,
  request: SealBlobRequest,
): Promise<MessageInitShape<typeof SealBlobResponseSchema>> {
  const { backendId, stagedId, blobId, size, sha256 = null, waitMs } = request;
  const facts = await seals.seal({ backendId, stagedId, blobId, size: byteCount(size), sha256 }, waitMs);
  if (facts === null) return {};
  return {
    blob: { key: blobKey(blobId), sha256: facts.sha256, chunkCrc32c: facts.chunkCrc32c, head: facts.head },
  };
}
