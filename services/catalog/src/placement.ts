import { sql } from 'kysely';
import type { QueryExecutorProvider } from 'kysely';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { PlacementState } from '@stowage/proto/stowage/catalog/v1/node';
import type { GetNodeRequest, GetNodeResponseSchema } from '@stowage/proto/stowage/catalog/v1/tree';
import { nodeMessage } from './node-message.ts';
import { kindOf, requireNode } from './nodes.ts';
import { isReadable, replicaMessage, replicasIn, replicasOfNode } from './replicas.ts';
import type { ReplicaRow, WithReplicas } from './replicas.ts';

/** What a file's policy asks for, by what can be done with backends now. */
export interface Wanted {
  replicas: number;
  /** The first so many of the policy's backends that are enabled and not unhealthy: fewer where there are not so many. */
  places: readonly string[];
}

/** The backends that are not as they should be. */
export interface Absent {
  /** Copies there do not count. */
  disabled: readonly string[];
  /** Nor do copies there, and they can not be read now. */
  unhealthy: readonly string[];
}

interface PlacementColumns {
  wanted: Wanted | null;
  absent: Absent;
}

const placementColumns = sql<WithReplicas & PlacementColumns>`${replicasOfNode}, (
    select json_build_object('replicas', replicas, 'places', usable_ids) from placement.wanted_places
    where file_class in (n.file_class, 'default') order by file_class = 'default' limit 1) as wanted, (
    select json_build_object(
      'disabled', coalesce(json_agg(id) filter (where not enabled), '[]'),
      'unhealthy', coalesce(json_agg(id) filter (where health_status = 'unhealthy'), '[]'))
    from registry.backend_standing) as absent`;

/** Reads one node, a file with its replicas if asked. Throws `not_found`. */
export async function getNode(
  db: QueryExecutorProvider,
  request: GetNodeRequest,
): Promise<MessageInitShape<typeof GetNodeResponseSchema>> {
  const kind = kindOf(request.kind);
  if (!request.withPlacement || kind !== 'file') return { node: nodeMessage(await requireNode(db, request.id, kind)) };
  const node = await requireNode(db, request.id, kind, placementColumns);
  const replicas = replicasIn(node.row);
  return {
    node: nodeMessage(node),
    placement: {
      state: placementState(replicas, node.row.wanted, node.row.absent),
      replicas: replicas.map(replicaMessage),
    },
  };
}

/**
 * How well a policy is kept. Good is a copy that was read whole, on a backend that is enabled and works. Satisfied: each
 * wanted place has one. Degraded: there are too few, and no job can make more before someone mends a backend or a bad copy is
 * replaced. Lost: nothing can be read, not even on a backend that is away.
 */
export function placementState(
  replicas: readonly ReplicaRow[],
  wanted: Wanted | null,
  { disabled, unhealthy }: Absent,
): PlacementState {
  if (!replicas.some(isReadable)) return PlacementState.LOST;
  const { replicas: count, places } = wanted ?? { replicas: 0, places: [] };
  const good = replicas.filter(({ state, backend_id: id }) => {
    return state === 'available' && !disabled.includes(id) && !unhealthy.includes(id);
  });
  const isKept = places.every((id) => good.some((replica) => replica.backend_id === id));
  if (places.length < count) return PlacementState.DEGRADED;
  if (isKept) return PlacementState.SATISFIED;
  if (good.length >= count) return PlacementState.CONVERGING;
  const hurt = replicas.some((replica) => isDamaged(replica) || unhealthy.includes(replica.backend_id));
  return hurt ? PlacementState.DEGRADED : PlacementState.CONVERGING;
}

function isDamaged({ state }: ReplicaRow): boolean {
  return state === 'corrupt' || state === 'missing';
}
