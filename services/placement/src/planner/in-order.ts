import { wantedBackends, planBlob } from './plan-blob.ts';
import type { BlobToPlan } from './plan-blob.ts';
import type { ReplicaFacts, World } from './facts.ts';

/** Where the replicas of a class lie when nothing is left to do: all of them available, and no other. */
export interface Arrangement {
  fileClass: string;
  /** Empty where something is to be done, or to be said, however they lie. */
  backendIds: string[];
}

/**
 * The arrangement of each class for which the planner itself gives neither a step nor a problem, so that blobs that lie so need
 * not be fetched to be planned for. It goes by nothing else: when a replica was read last matters only beside a surplus one.
 */
export function arrangementsInOrder(
  world: World,
  classes: readonly string[],
  toPlan: (fileClass: string, replicas: readonly ReplicaFacts[]) => BlobToPlan,
): Arrangement[] {
  return classes.map((fileClass) => {
    const { backendIds } = wantedBackends(world, toPlan(fileClass, []).policies);
    const replicas = backendIds.map((backendId): ReplicaFacts => {
      return { backendId, state: 'available', verifiedAgoMs: null };
    });
    const { steps, problems } = planBlob(world, toPlan(fileClass, replicas));
    return { fileClass, backendIds: steps.length === 0 && problems.length === 0 ? backendIds : [] };
  });
}
