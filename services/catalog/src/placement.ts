import { sql } from 'kysely';
import type { QueryExecutorProvider } from 'kysely';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { PlacementState } from '@stowage/proto/stowage/catalog/v1/node';
import type { GetNodeRequest, GetNodeResponseSchema } from '@stowage/proto/stowage/catalog/v1/tree';
import { nodeMessage } from './node-message.ts';
import { kindOf, requireNode } from './nodes.ts';
import { isReadable, replicaMessage, replicasOf } from './replicas.ts';
import type { ReplicaRow } from './replicas.ts';

/** Reads one node, a file with its replicas if asked. Throws `not_found`. */
export async function getNode(
  db: QueryExecutorProvider,
  request: GetNodeRequest,
): Promise<MessageInitShape<typeof GetNodeResponseSchema>> {
  const node = await requireNode(db, request.id, kindOf(request.kind));
  const message = nodeMessage(node);
  if (!request.withPlacement || node.row.kind !== 'file') return { node: message };
  const replicas = await replicasOf(db, node.row.blob_id);
  const wanted = await wantedReplicas(db, node.row.file_class);
  return {
    node: message,
    placement: { state: placementState(replicas, wanted), replicas: replicas.map(replicaMessage) },
  };
}

/** How well `wanted` copies are kept. Only `available` ones count as good; one that can be read means that it is not lost. */
export function placementState(replicas: readonly ReplicaRow[], wanted: number): PlacementState {
  if (!replicas.some(isReadable)) return PlacementState.LOST;
  const good = replicas.filter((replica) => replica.state === 'available').length;
  if (good >= wanted) return PlacementState.SATISFIED;
  const damaged = replicas.some((replica) => replica.state === 'corrupt' || replica.state === 'missing');
  return damaged ? PlacementState.DEGRADED : PlacementState.CONVERGING;
}

async function wantedReplicas(db: QueryExecutorProvider, fileClass: string | null): Promise<number> {
  const { rows } = await sql<{ replicas: number }>`
    select replicas from placement.wanted_replicas where file_class in (${fileClass}, 'default')
    order by file_class = 'default' limit 1`.execute(db);
  return rows[0]?.replicas ?? 1;
}
