import { AppError, unavailable } from '@stowage/common/errors';
import { newId } from '@stowage/common/ids';
import { endpoint } from '@stowage/common/rpc/contract';
import type { Endpoint } from '@stowage/common/rpc/contract';
import { BackendService } from '@stowage/proto/stowage/backend_registry/v1/backend';
import { BlobService, VerifyResult } from '@stowage/proto/stowage/backend_registry/v1/blob';
import { ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import type { ReplicaState } from '@stowage/proto/stowage/catalog/v1/node';

export const [localId, farId] = [newId(), newId()];

/** What the services around did, and what they shall do. */
export const around = {
  registryUp: true,
  hasDefault: true,
  /** How often backend-registry was asked for its backends. */
  asked: 0,
  sick: new Set<string>(),
  replicas: [] as { backendId: string; key: string }[],
  forgotten: [] as string[],
  /** Before a blob's bytes are removed. */
  removing: async (): Promise<void> => undefined,
  verdict: VerifyResult.GOOD as VerifyResult,
  settled: [] as ReplicaState[],
};

async function unused(): Promise<never> {
  throw new Error('placement is not expected to call this');
}

export function fakeBackends(): Endpoint {
  return endpoint(BackendService, {
    getBackend: unused,
    createBackend: unused,
    updateBackend: unused,
    checkBackend: async ({ id }) => {
      if (around.sick.has(id)) throw unavailable('backend-registry is away.');
      return {};
    },
    setBackendEnabled: unused,
    deleteBackend: unused,
    forgetReplicas: unused,
    judgeBackends: unused,
    sweepBackend: async ({ id }) => {
      if (id !== localId) throw new AppError('not_found', 'There is no such backend.');
      return { temporaries: 2n, staged: 1n };
    },
    listBackends: async ({ cursor }) => {
      around.asked += 1;
      if (!around.registryUp) throw unavailable('backend-registry is not there yet.');
      if (cursor === '') return { items: [{ id: farId, isDefault: false }], nextCursor: 'more' };
      return { items: [{ id: localId, isDefault: around.hasDefault }] };
    },
  });
}

export function fakeBlobs(): Endpoint {
  return endpoint(BlobService, {
    chooseBackend: unused,
    createStaged: unused,
    statStaged: unused,
    discardStaged: unused,
    sealBlob: unused,
    deleteBlob: async ({ backendId }) => {
      if (around.sick.has(backendId)) throw unavailable('The backend is away.');
      await around.removing();
      return {};
    },
    verifyBlob: async () => ({ result: around.verdict }),
    copyBlob: unused,
  });
}

export function fakeContent(): Endpoint {
  return endpoint(ContentService, {
    getContent: unused,
    getChunkChecksums: unused,
    reportReplica: unused,
    checkDestination: unused,
    commitFile: unused,
    abandonBlob: unused,
    getBackendUsage: unused,
    claimBlobRemoval: async () => ({
      replicas: around.replicas.filter(({ backendId }) => !around.forgotten.includes(backendId)),
    }),
    forgetBackendReplicas: unused,
    forgetReplica: async ({ backendId }) => {
      around.forgotten.push(backendId);
      return {};
    },
    settleReplica: async ({ state }) => {
      around.settled.push(state);
      return {};
    },
  });
}
