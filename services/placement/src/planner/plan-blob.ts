import { isReachable, isReplaced, isSound } from './facts.ts';
import type { RecordedState, ReplicaFacts, WantedCopies, World } from './facts.ts';

/** One thing to do; each is right only while the facts are what the plan was made of, or what its steps before made them. */
export type Step =
  | { kind: 'copy'; from: string; to: string }
  | { kind: 'verify'; backendId: string }
  /** Calls off a removal that was begun, as the replica is needed. */
  | { kind: 'keep'; backendId: string }
  /** Takes a copy that was begun for made, as it may be whole, to be verified. */
  | { kind: 'adopt'; backendId: string }
  /** `staying` are the replicas that make it surplus: each good, freshly verified, on an enabled healthy backend. */
  | { kind: 'remove'; backendId: string; staying: string[] };

/** What stands in the way of a policy; none of these is mended by doing something now. */
export type Problem =
  /** Fewer backends than copies are enabled, and have not been unhealthy for too long. */
  | { code: 'too_few_backends'; missing: number }
  /** The copy that belongs there waits until the backend is healthy again. */
  | { code: 'backend_unhealthy'; backendId: string }
  /** Every copy that could be read lies on a backend that is unhealthy. */
  | { code: 'source_unreachable' }
  /** The copy there is surplus, and stays while removals are held. */
  | { code: 'removals_held'; backendId: string }
  /** Nothing is left that could be read. */
  | { code: 'lost' };

export interface BlobPlan {
  /** In order. Done one after the other, they lead to a state whose plan is empty. */
  steps: Step[];
  problems: Problem[];
  /** No copy is left that could be read, here or on a backend that is away. */
  lost: boolean;
  /** Nothing can be read: the steps look again at what was found bad, each run anew. */
  rescue: boolean;
}

/** What a plan is made for. */
export interface BlobToPlan {
  /** The policies of the file classes that the blob has; what any of them wants is wanted. */
  policies: readonly WantedCopies[];
  replicas: readonly ReplicaFacts[];
}

/**
 * Plans how a blob comes to lie where its policies say. Pure: preview, place_blob and full_reconcile all ask it. Copies
 * come first, then they are read back, and only when all that is wanted is good and freshly read is the rest removed.
 */
export function planBlob(world: World, { policies, replicas }: BlobToPlan): BlobPlan {
  // What no file has is not placed anywhere: its removal is a matter of its own.
  if (policies.length === 0) return { steps: [], problems: [], lost: false, rescue: false };
  const known = new Map(replicas.map((replica) => [replica.backendId, replica]));
  const wanted = wantedBackends(world, policies);
  const named = new Set(policies.flatMap(({ backendIds }) => backendIds));
  const steps: Step[] = [];
  const problems: Problem[] = wanted.missing > 0 ? [{ code: 'too_few_backends', missing: wanted.missing }] : [];
  if (!replicas.some(({ state }) => isReadable(state))) {
    const rescue = rescueSteps(world, replicas);
    const lost = replicas.every(({ state }) => state !== 'removing');
    return {
      steps: rescue,
      problems: [...problems, { code: lost ? 'lost' : 'source_unreachable' }],
      lost,
      rescue: true,
    };
  }
  const ready = new Set<string>();
  if (bestSource(world, known) === null) steps.push(...keepGoing(world, replicas));
  for (const backendId of wanted.backendIds) {
    const prepared = prepare(world, known, backendId);
    steps.push(...prepared.steps);
    if (prepared.problem) problems.push(prepared.problem);
    else ready.add(backendId);
  }
  const complete = wanted.missing === 0 && ready.size === wanted.backendIds.length && wanted.backendIds.length > 0;
  if (complete) {
    const last = removals(world, known, { staying: wanted.backendIds, named, steps });
    if (world.removalsHeld === true) problems.push(...last.flatMap(held));
    else steps.push(...last);
  }
  return { steps, problems: distinct(problems), lost: false, rescue: false };
}

interface Wanted {
  backendIds: string[];
  missing: number;
}

/** Where copies belong: of each policy the first backends that are enabled and not given up. */
export function wantedBackends({ backends, limits }: World, policies: readonly WantedCopies[]): Wanted {
  const backendIds = new Set<string>();
  let missing = 0;
  for (const policy of policies) {
    const usable = policy.backendIds.filter((id) => !isReplaced(backends.get(id), limits)).slice(0, policy.replicas);
    for (const id of usable) backendIds.add(id);
    missing = Math.max(missing, policy.replicas - usable.length);
  }
  return { backendIds: [...backendIds], missing };
}

/** What makes the replica of a wanted backend good, or why that has to wait. */
function prepare(
  world: World,
  known: ReadonlyMap<string, ReplicaFacts>,
  backendId: string,
): { steps: Step[]; problem?: Problem } {
  const state = known.get(backendId)?.state;
  if (!isSound(world.backends.get(backendId))) {
    // Present until it has been unhealthy for too long, but no ground to remove anything elsewhere.
    return { steps: [], problem: { code: 'backend_unhealthy', backendId } };
  }
  if (state === 'available') return { steps: [] };
  const verify: Step = { kind: 'verify', backendId };
  if (state === 'unverified') return { steps: [verify] };
  if (state === 'removing') return { steps: [{ kind: 'keep', backendId }, verify] };
  const from = bestSource(world, known);
  if (from === null) return { steps: [], problem: { code: 'source_unreachable' } };
  return { steps: [{ kind: 'copy', from, to: backendId }, verify] };
}

/** The replica to copy from: one that was read whole before one that was not, then in the order they were made. */
function bestSource({ backends }: World, known: ReadonlyMap<string, ReplicaFacts>): string | null {
  const reachable = [...known.values()].filter(({ backendId }) => isReachable(backends.get(backendId)));
  const source =
    reachable.find(({ state }) => state === 'available') ?? reachable.find(({ state }) => state === 'unverified');
  return source?.backendId ?? null;
}

interface Settled {
  staying: string[];
  named: ReadonlySet<string>;
  /** What is planned before. */
  steps: readonly Step[];
}

/** Removes what no policy wants, now that all that is wanted is, or will be, good; verifies again what was read long ago. */
function removals(
  { backends, limits }: World,
  known: ReadonlyMap<string, ReplicaFacts>,
  { staying, named, steps }: Settled,
): Step[] {
  const stays = new Set(staying);
  const surplus = [...known.keys()].filter((backendId) => {
    const backend = backends.get(backendId);
    if (stays.has(backendId) || !isReachable(backend)) return false;
    return backend?.enabled === true || !named.has(backendId);
  });
  if (surplus.length === 0) return [];
  const verified = new Set(steps.flatMap((step) => (step.kind === 'verify' ? [step.backendId] : [])));
  const isStale = (backendId: string): boolean => {
    const ago = known.get(backendId)?.verifiedAgoMs ?? null;
    return !verified.has(backendId) && (ago === null || ago > limits.freshMs);
  };
  return [
    ...staying.filter(isStale).map((backendId): Step => ({ kind: 'verify', backendId })),
    ...surplus.map((backendId): Step => ({ kind: 'remove', backendId, staying: [...staying] })),
  ];
}

/** With nothing left to read: what is about to go is kept, else what was found bad is looked at again. */
function rescueSteps(world: World, replicas: readonly ReplicaFacts[]): Step[] {
  const kept = keepGoing(world, replicas);
  if (kept.length > 0) return kept;
  return replicas
    .filter(({ backendId }) => isReachable(world.backends.get(backendId)))
    .flatMap(({ backendId, state }): Step[] => [
      ...(state === 'copying' ? [{ kind: 'adopt', backendId } as const] : []),
      { kind: 'verify', backendId },
    ]);
}

function held(step: Step): Problem[] {
  return step.kind === 'remove' ? [{ code: 'removals_held', backendId: step.backendId }] : [];
}

/** Calls off removals where no other copy can be read: what is about to go may be the last good one. */
function keepGoing({ backends }: World, replicas: readonly ReplicaFacts[]): Step[] {
  return replicas
    .filter(({ backendId, state }) => state === 'removing' && isReachable(backends.get(backendId)))
    .flatMap(({ backendId }): Step[] => [
      { kind: 'keep', backendId },
      { kind: 'verify', backendId },
    ]);
}

/** Whether bytes can be read from it. */
export function isReadable(state: RecordedState): boolean {
  return state === 'available' || state === 'unverified';
}

function distinct(problems: readonly Problem[]): Problem[] {
  return [...new Map(problems.map((problem) => [JSON.stringify(problem), problem])).values()];
}
