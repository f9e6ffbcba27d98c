import type { MessageInitShape } from '@bufbuild/protobuf';
import {
  downloadEndpoint,
  appendStaged as appendStagedOperation,
  readBlob,
  readKept,
  uploadEndpoint,
  writeKept,
} from '@stowage/common/bytes/operations';
import type { ByteEndpoint } from '@stowage/common/bytes/operations';
import { AppError, unavailable } from '@stowage/common/errors';
import { query } from '@stowage/common/database/transaction';
import type { CallContext } from '@stowage/common/rpc/context';
import { endpoint } from '@stowage/common/rpc/contract';
import type { Client, Endpoint, Implementation } from '@stowage/common/rpc/contract';
import type { Logger } from '@stowage/common/runtime/logger';
import { BackendService } from '@stowage/proto/stowage/backend_registry/v1/backend';
import type { GetBackendResponseSchema } from '@stowage/proto/stowage/backend_registry/v1/backend';
import { BlobService, VerifyResult } from '@stowage/proto/stowage/backend_registry/v1/blob';
import type {
  CopyResult,
  SealBlobRequest,
  SealBlobResponseSchema,
} from '@stowage/proto/stowage/backend_registry/v1/blob';
import { KeptService } from '@stowage/proto/stowage/backend_registry/v1/kept';
import { StoredService } from '@stowage/proto/stowage/backend_registry/v1/stored';
import type { ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import type { Kysely } from 'kysely';
import { appendStaged, byteCount } from './append-staged.ts';
import { Bandwidth } from './bandwidth.ts';
import { deleteBackend, setBackendEnabled } from './backend-state.ts';
import { findBackend } from './backend-row.ts';
import { getBackend, listBackends } from './backends.ts';
import { chooseBackend } from './choose-backend.ts';
import type { LocalRoots } from './config/local-roots.ts';
import { copyBlob, markerFreshMs } from './copy-blob.ts';
import { createBackend } from './create-backend.ts';
import { blockerMessage, deleteBlockers } from './delete-blockers.ts';
import type { DigestCache } from './digest-cache.ts';
import { forgetReplicas } from './forget-replicas.ts';
import type { EndpointGuard } from './network/endpoint-guard.ts';
import { judgeBackends } from './judge-backends.ts';
import { listStored } from './list-stored.ts';
import { deleteKeptExport, readKeptExport, writeKeptExport } from './kept-exports.ts';
import { requireAppendable } from './open-backend.ts';
import type { OpenBackends } from './open-backend.ts';
import { contentKey } from './seal-blob.ts';
import type { Seals } from './seal-blob.ts';
import type { KeyRing } from './secrets/key-ring.ts';
import type { ReferencedSecrets } from './secrets/secret-ref.ts';
import { withKeyedFingerprint } from './secrets/keyed-fingerprint.ts';
import { blobKey, parseBlobKey } from './stores/keys.ts';
import { sweepBackend } from './sweep-backend.ts';
import type { Tables } from './tables.ts';
import { updateBackend } from './update-backend.ts';
import { verifyBlob } from './verify-blob.ts';

export interface RegistryParts {
  db: Kysely<Tables>;
  /** For short reading. */
  reads: Kysely<Tables>;
  content: Client<typeof ContentService>;
  backends: OpenBackends;
  roots: LocalRoots;
  guard: EndpointGuard;
  /** Seals and opens secrets. Throws `unavailable` until the start has found the keys. */
  keys: () => KeyRing;
  /** The Kubernetes Secrets that backends may refer to. */
  references: ReferencedSecrets;
  digests: DigestCache;
  seals: Seals;
  reserveBytes: number;
  /** Of what nobody waits for. */
  bandwidth: Bandwidth;
  logger: Logger;
}

const unlimited = new Bandwidth(null);

/** Which function answers which call. */
export function registryEndpoints(parts: RegistryParts): Endpoint[] {
  const keyed = (context: CallContext): CallContext => withKeyedFingerprint(context, parts.keys);
  return [
    endpoint(BackendService, {
      listBackends: (request) => listBackends(parts.db, request),
      getBackend: ({ id }) => getWithBlockers(parts.db, id),
      createBackend: (request, context) => createBackend(parts, request, keyed(context)),
      updateBackend: (request, context) => updateBackend(parts, request, keyed(context)),
      checkBackend: async ({ id, scheduled }) => {
        await parts.backends.check(id, scheduled ? 'series' : 'decides');
        return { backend: await getBackend(parts.db, id) };
      },
      setBackendEnabled: (request, context) => setBackendEnabled(parts, request, keyed(context)),
      deleteBackend: (request, context) => deleteBackend(parts, request, keyed(context)),
      forgetReplicas: (request, context) => forgetReplicas(parts, request, keyed(context)),
      sweepBackend: async ({ id }) => {
        const { temporaries, staged } = await sweepBackend(parts, id);
        return { temporaries: BigInt(temporaries), staged: BigInt(staged) };
      },
      judgeBackends: (request) => judgeBackends(parts, request),
    }),
    endpoint(BlobService, blobCalls(parts)),
    endpoint(KeptService, {
      deleteKept: async ({ backendId, key }) => {
        await deleteKeptExport(parts.backends, backendId, key);
        return {};
      },
    }),
    endpoint(StoredService, { listStoredBlobs: (request) => listStored(parts.backends, request) }),
  ];
}

async function getWithBlockers(
  db: Kysely<Tables>,
  id: string,
): Promise<MessageInitShape<typeof GetBackendResponseSchema>> {
  const backend = await getBackend(db, id);
  const blockers = await query(async () => deleteBlockers(db, await findBackend(db, id)));
  return { backend, blockers: blockers.map(blockerMessage) };
}

/** Which function answers which request of the byte port. */
export function registryByteEndpoints(parts: RegistryParts): ByteEndpoint[] {
  return [
    uploadEndpoint(appendStagedOperation, (request, body, context) => appendStaged(parts, request, body, context)),
    downloadEndpoint(readBlob, (request, context) => {
      const range = { start: byteCount(request.start), end: byteCount(request.end) };
      parseBlobKey(request.key);
      return parts.backends.use(request.backendId, (store) => store.read(request.key, range, context.signal));
    }),
    uploadEndpoint(writeKept, async (request, body, context) => {
      await writeKeptExport(parts.backends, request, body, context.signal);
      return {};
    }),
    downloadEndpoint(readKept, (request, context) => readKeptExport(parts.backends, request, context.signal)),
  ];
}

function blobCalls(parts: RegistryParts): Implementation<typeof BlobService> {
  return {
    chooseBackend: ({ backendIds, size, except }) =>
      chooseBackend(parts, { backendIds, size: size === undefined ? null : byteCount(size), except }),
    createStaged: async ({ backendId, stagedId }) => {
      await parts.backends.useAppendable(backendId, (store) => store.createStaged(stagedId));
      return {};
    },
    statStaged: ({ backendId, stagedId }) =>
      parts.backends.useAppendable(backendId, async (store) => {
        const offset = await store.stagedOffset(stagedId);
        if (offset === null) throw new AppError('not_found', 'There is no such upload on this backend.');
        return { offset: BigInt(offset) };
      }),
    discardStaged: async ({ backendId, stagedId }) => {
      await requireAppendable(await parts.backends.recheck(backendId)).discard(stagedId);
      parts.digests.forget(contentKey(backendId, stagedId));
      return {};
    },
    sealBlob: (request) => sealBlob(parts.seals, request),
    deleteBlob: async ({ backendId, key }, { signal }) => {
      parseBlobKey(key);
      const store = await parts.backends.recheck(backendId);
      // Whoever asked may have given up long ago, where this process stood still; the blob may be there anew.
      if (signal.aborted) throw unavailable('The caller went away.');
      await store.delete(key);
      return {};
    },
    verifyBlob: async ({ backendId, key, size, sha256 }, context) => {
      parseBlobKey(key);
      const claim = { key, size: byteCount(size), sha256 };
      const { signal } = context;
      const verify = async (): Promise<VerifyResult> => {
        const store = await parts.backends.openFresh(backendId, markerFreshMs);
        const result = await verifyBlob(store, claim, parts.bandwidth, signal);
        // Nothing is missing from a disk that was unmounted while it was looked for.
        if (result !== VerifyResult.GOOD) await parts.backends.recheck(backendId);
        return result;
      };
      return { result: await parts.bandwidth.turn(signal, verify) };
    },
    copyBlob: async ({ fromBackendId, toBackendId, key, size, sha256, urgent }, context) => {
      parseBlobKey(key);
      const wanted = { from: fromBackendId, to: toBackendId, blob: { key, size: byteCount(size), sha256 } };
      const bandwidth = urgent ? unlimited : parts.bandwidth;
      const copy = (): Promise<CopyResult> => copyBlob({ ...parts, bandwidth }, wanted, context.signal);
      return { result: await bandwidth.turn(context.signal, copy) };
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
