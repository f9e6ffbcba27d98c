import type { Kysely } from 'kysely';
import type { DescMessage, MessageInitShape, MessageShape } from '@bufbuild/protobuf';
import { inTransaction, query } from '@stowage/common/database/transaction';
import { idempotent } from '@stowage/common/jobs/idempotency';
import type { CallContext } from '@stowage/common/rpc/context';
import { endpoint } from '@stowage/common/rpc/contract';
import type { Endpoint } from '@stowage/common/rpc/contract';
import { ComparisonService } from '@stowage/proto/stowage/catalog/v1/comparison';
import { ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import { ReplicaService } from '@stowage/proto/stowage/catalog/v1/replica';
import {
  CreateDirectoryResponseSchema,
  MoveNodeResponseSchema,
  PurgeNodeResponseSchema,
  RecycleNodeResponseSchema,
  RenameNodeResponseSchema,
  RestoreNodeResponseSchema,
  TreeService,
} from '@stowage/proto/stowage/catalog/v1/tree';
import { claimBlobRemoval, forgetReplica } from './blobs.ts';
import { moveNode, renameNode } from './change-place.ts';
import { commitFileAtOnce } from './commit-file-at-once.ts';
import { abandonBlob, commitFile } from './commit-file.ts';
import { adoptReplica, condemnUnknownBlobs, countBlobs, listBackendReplicas, lookUpBlobs } from './comparison.ts';
import { checkDestination, getChunkChecksums, getContent } from './content.ts';
import { createDirectory } from './directories.ts';
import { forgetBackendReplicas } from './forget-backend.ts';
import { getBlob, listBlobs } from './list-blobs.ts';
import { listChildren } from './listing.ts';
import type { Trx } from './nodes.ts';
import { getNode } from './placement.ts';
import { noteReplicas } from './note-replicas.ts';
import { emptyRecycleBin, purgeNode } from './purge.ts';
import { listRecycleBin, recycleNode, restoreNode } from './recycle-bin.ts';
import { claimReplicaRemoval, keepReplica } from './replica-notes.ts';
import { backendUsage, reportReplica, settleReplica } from './replicas.ts';
import { scanBlobs } from './scan-blobs.ts';
import { listStaleReplicas } from './stale-replicas.ts';
import type { Keeping } from './settings.ts';

/** Which function answers which call; `reads` is for short reading. */
export function catalogEndpoints(db: Kysely<unknown>, reads: Kysely<unknown>, keeping: Keeping): Endpoint[] {
  return [treeEndpoint(db, reads, keeping), contentEndpoint(db, reads), replicaEndpoint(db), comparisonEndpoint(db)];
}

function treeEndpoint(db: Kysely<unknown>, reads: Kysely<unknown>, keeping: Keeping): Endpoint {
  const change = <O extends DescMessage>(
    context: CallContext,
    output: O,
    run: (trx: Trx) => Promise<MessageInitShape<O>>,
  ): Promise<MessageShape<O>> => inTransaction(db, (trx) => idempotent(trx, context, output, () => run(trx)));
  return endpoint(TreeService, {
    getNode: (request) => query(() => getNode(reads, request)),
    listChildren: (request) => query(() => listChildren(db, request)),
    createDirectory: (request, context) =>
      change(context, CreateDirectoryResponseSchema, (trx) => createDirectory(trx, context, request)),
    renameNode: (request, context) =>
      change(context, RenameNodeResponseSchema, (trx) => renameNode(trx, context, request)),
    moveNode: (request, context) => change(context, MoveNodeResponseSchema, (trx) => moveNode(trx, context, request)),
    recycleNode: (request, context) =>
      change(context, RecycleNodeResponseSchema, (trx) => recycleNode(trx, keeping, context, request)),
    restoreNode: (request, context) =>
      change(context, RestoreNodeResponseSchema, (trx) => restoreNode(trx, context, request)),
    purgeNode: (request, context) =>
      change(context, PurgeNodeResponseSchema, (trx) => purgeNode(trx, keeping, context, request)),
    listRecycleBin: (request) => query(() => listRecycleBin(db, request)),
    emptyRecycleBin: (_request, context) => emptyRecycleBin(db, context),
  });
}

/** Its callers are services that keep their own idempotency: each change here may be asked for again. */
function contentEndpoint(db: Kysely<unknown>, reads: Kysely<unknown>): Endpoint {
  return endpoint(ContentService, {
    getContent: (request) => query(() => getContent(reads, request)),
    getChunkChecksums: (request) => query(() => getChunkChecksums(reads, request)),
    reportReplica: (request) => inTransaction(db, (trx) => reportReplica(trx, request)),
    settleReplica: (request) => inTransaction(db, (trx) => settleReplica(trx, request)),
    checkDestination: (request) => query(() => checkDestination(reads, request)),
    commitFile: async (request, context) =>
      (await query(() => commitFileAtOnce(db, context, request))) ??
      inTransaction(db, (trx) => commitFile(trx, context, request)),
    abandonBlob: (request) => inTransaction(db, (trx) => abandonBlob(trx, request)),
    claimBlobRemoval: (request) => inTransaction(db, (trx) => claimBlobRemoval(trx, request)),
    forgetReplica: (request) => inTransaction(db, (trx) => forgetReplica(trx, request)),
    forgetBackendReplicas: (request) => inTransaction(db, (trx) => forgetBackendReplicas(trx, request)),
    getBackendUsage: () => query(() => backendUsage(db)),
  });
}

function replicaEndpoint(db: Kysely<unknown>): Endpoint {
  return endpoint(ReplicaService, {
    listBlobs: (request) => query(() => listBlobs(db, request)),
    scanBlobs: (request) => query(() => scanBlobs(db, request)),
    listStaleReplicas: (request) => query(() => listStaleReplicas(db, request)),
    getBlob: (request) => query(() => getBlob(db, request)),
    noteReplicas: (request) => inTransaction(db, (trx) => noteReplicas(trx, request)),
    claimReplicaRemoval: (request) => inTransaction(db, (trx) => claimReplicaRemoval(trx, request)),
    keepReplica: (request) => inTransaction(db, (trx) => keepReplica(trx, request)),
  });
}

function comparisonEndpoint(db: Kysely<unknown>): Endpoint {
  return endpoint(ComparisonService, {
    listBackendReplicas: (request) => query(() => listBackendReplicas(db, request)),
    lookUpBlobs: (request) => query(() => lookUpBlobs(db, request)),
    adoptReplica: (request) => inTransaction(db, (trx) => adoptReplica(trx, request)),
    condemnUnknownBlobs: (request) => inTransaction(db, (trx) => condemnUnknownBlobs(trx, request)),
    countBlobs: () => query(() => countBlobs(db)),
  });
}
