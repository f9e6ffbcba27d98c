import { sql } from 'kysely';
import type { QueryExecutorProvider } from 'kysely';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { PlacementState } from '@stowage/proto/stowage/catalog/v1/node';
import type { GetNodeRequest, GetNodeResponseSchema } from '@stowage/proto/stowage/catalog/v1/tree';
import { nodeMessage } from './node-message.ts';
import { kindOf, requireNode } from './nodes.ts';
import { isReadable, replicaMessage, replicasIn, replicasOfNode } from './replicas.ts';
import type { ReplicaRow, WithReplicas } from './replicas.ts';

const wantedReplicas = sql<WithReplicas & { wanted: number | null }>`${replicasOfNode}, (
    select replicas from placement.wanted_replicas where file_class in (n.file_class, 'default')
    order by file_class = 'default' limit 1) as wanted`;

/** Reads one node, a file with its replicas if asked. Throws `not_found`. */
export async function getNode(
  db: QueryExecutorProvider,
  request: GetNodeRequest,
): Promise<MessageInitShape<typeof GetNodeResponseSchema>> {
  const kind = kindOf(request.kind);
  if (!request.withPlacement || kind !== 'file') return { node: nodeMessage(await requireNode(db, request.id, kind)) };
  const node = await requireNode(db, request.id, kind, wantedReplicas);
  const replicas = replicasIn(node.row);
  return {
    node: nodeMessage(node),
    placement: {
      state: placementState(replicas, node.row.wanted ?? 1),
      replicas: replicas.map(replicaMessage),
    },
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
