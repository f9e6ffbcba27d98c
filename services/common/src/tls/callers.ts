import type { DescService } from '@bufbuild/protobuf';
import { BackendService } from '@stowage/proto/stowage/backend_registry/v1/backend';
import { BlobService } from '@stowage/proto/stowage/backend_registry/v1/blob';
import { KeptService } from '@stowage/proto/stowage/backend_registry/v1/kept';
import { StoredService } from '@stowage/proto/stowage/backend_registry/v1/stored';
import { ComparisonService } from '@stowage/proto/stowage/catalog/v1/comparison';
import { ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import { ReplicaService } from '@stowage/proto/stowage/catalog/v1/replica';
import { TreeService } from '@stowage/proto/stowage/catalog/v1/tree';
import { DocumentService } from '@stowage/proto/stowage/export/v1/document';
import { ExportService } from '@stowage/proto/stowage/export/v1/export';
import { JobService } from '@stowage/proto/stowage/placement/v1/job';
import { PolicyService } from '@stowage/proto/stowage/placement/v1/policy';
import { SystemService } from '@stowage/proto/stowage/system/v1/system';
import { UploadService } from '@stowage/proto/stowage/upload/v1/upload';
import {
  appendStaged,
  appendUpload,
  createUploadWithBody,
  importPlan,
  planRestore,
  readBlob,
  readExport,
  readKept,
  validateDocument,
  writeKept,
} from '../bytes/operations.ts';
import type { ServiceName } from '../rpc/connections.ts';
import { pathOf } from '../rpc/contract.ts';

type Callers = readonly ServiceName[];

const gateway: Callers = ['gateway'];
const upload: Callers = ['upload'];
const placement: Callers = ['placement'];
const exporting: Callers = ['export'];

/** Who may make which gRPC call, by the call's path. What has no row is refused to everybody. */
const rpcCallers: ReadonlyMap<string, Callers> = new Map([
  ...rows(TreeService, {
    getNode: ['gateway', 'upload'],
    listChildren: gateway,
    createDirectory: gateway,
    renameNode: gateway,
    moveNode: gateway,
    recycleNode: gateway,
    restoreNode: gateway,
    purgeNode: gateway,
    listRecycleBin: gateway,
    emptyRecycleBin: gateway,
  }),
  ...rows(ContentService, {
    getContent: gateway,
    getChunkChecksums: gateway,
    reportReplica: gateway,
    settleReplica: placement,
    checkDestination: upload,
    commitFile: upload,
    abandonBlob: upload,
    claimBlobRemoval: placement,
    forgetReplica: placement,
    forgetBackendReplicas: ['backend-registry'],
    getBackendUsage: placement,
  }),
  ...rows(ReplicaService, {
    listBlobs: placement,
    scanBlobs: placement,
    listStaleReplicas: placement,
    getBlob: placement,
    noteReplicas: placement,
    claimReplicaRemoval: placement,
    keepReplica: placement,
  }),
  ...rows(ComparisonService, {
    listBackendReplicas: placement,
    lookUpBlobs: placement,
    adoptReplica: placement,
    condemnUnknownBlobs: placement,
    countBlobs: placement,
  }),
  ...rows(UploadService, {
    createUpload: gateway,
    getUpload: gateway,
    terminateUpload: gateway,
    finalizeUpload: gateway,
  }),
  ...rows(BackendService, {
    listBackends: ['gateway', 'placement'],
    getBackend: gateway,
    createBackend: gateway,
    updateBackend: gateway,
    checkBackend: ['gateway', 'placement'],
    setBackendEnabled: gateway,
    deleteBackend: gateway,
    forgetReplicas: gateway,
    sweepBackend: placement,
    judgeBackends: exporting,
  }),
  ...rows(BlobService, {
    chooseBackend: upload,
    createStaged: upload,
    statStaged: upload,
    discardStaged: upload,
    sealBlob: upload,
    deleteBlob: placement,
    verifyBlob: placement,
    copyBlob: ['upload', 'placement'],
  }),
  ...rows(StoredService, { listStoredBlobs: placement }),
  ...rows(KeptService, { deleteKept: exporting }),
  ...rows(PolicyService, {
    getPolicy: ['gateway', 'upload'],
    listPolicies: gateway,
    putPolicy: gateway,
    deletePolicy: gateway,
    previewPlacement: gateway,
  }),
  ...rows(JobService, {
    listJobs: gateway,
    getJob: gateway,
    retryJob: gateway,
    cancelJob: gateway,
    enqueueHealthChecks: gateway,
    enqueueFullReconcile: gateway,
    runPending: gateway,
  }),
  ...rows(ExportService, { checkIntegrity: gateway }),
  ...rows(DocumentService, { getSchema: gateway }),
  ...rows(SystemService, { check: gateway }),
]);

/** Who may use which byte operation, by its path. */
const byteCallers: ReadonlyMap<string, Callers> = new Map([
  [appendUpload.path, gateway],
  [createUploadWithBody.path, gateway],
  [appendStaged.path, upload],
  [readBlob.path, gateway],
  [writeKept.path, exporting],
  [readKept.path, exporting],
  [readExport.path, gateway],
  [validateDocument.path, gateway],
  [planRestore.path, gateway],
  [importPlan.path, gateway],
]);

/** Who may make the call at `path`, such as `/stowage.catalog.v1.TreeService/GetNode`; nobody where it has no row. */
export function rpcCallersOf(path: string): Callers {
  return rpcCallers.get(path) ?? [];
}

/** As rpcCallersOf, for the path of a byte operation. */
export function byteCallersOf(path: string): Callers {
  return byteCallers.get(path) ?? [];
}

/**
 * Whether a call may say for which user it is made. Only the gateway knows who is logged in; upload passes that on to where
 * the file is made, which tells in an event whose it is. From anybody else a user is not believed.
 */
export function mayStateUser(caller: ServiceName, path: string): boolean {
  return caller === 'gateway' || (caller === 'upload' && path === pathOf(ContentService.method.commitFile));
}

function rows<S extends DescService>(
  { methods }: S,
  callers: Record<keyof S['method'] & string, Callers>,
): [string, Callers][] {
  const all: Readonly<Record<string, Callers>> = callers;
  return methods.map((method) => [pathOf(method), all[method.localName] ?? []]);
}
