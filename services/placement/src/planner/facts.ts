/** How a replica is recorded. Only `available` counts as good: it was read from end to end and hashed right. */
export type RecordedState = 'available' | 'unverified' | 'copying' | 'corrupt' | 'missing' | 'removing';

/** A replica as catalog records it. */
export interface ReplicaFacts {
  backendId: string;
  state: RecordedState;
  /** How long ago, in ms, it was last read from end to end and found good; null for never. */
  verifiedAgoMs: number | null;
}

/** A backend as backend-registry tells of it. */
export interface BackendFacts {
  id: string;
  enabled: boolean;
  health: 'unknown' | 'healthy' | 'unhealthy';
  /** For how long, in ms, its health is what it is. */
  healthAgeMs: number;
}

/** What a policy asks for: `replicas` copies on the first suitable of `backendIds`. */
export interface WantedCopies {
  backendIds: readonly string[];
  replicas: number;
}

/** What the planner goes by beside policies and backends. */
export interface PlanLimits {
  /** How long a backend may be unhealthy, in ms, before others stand in for it. */
  outageGraceMs: number;
  /** How fresh, in ms, the verification of those that stay must be before a surplus replica goes. */
  freshMs: number;
}

/** Backends by what may be done with them now; `policies` are those of the classes that the content has. */
export interface World {
  backends: ReadonlyMap<string, BackendFacts>;
  limits: PlanLimits;
  /** Nothing may be removed now, as after an import; unset: it may. */
  removalsHeld?: boolean;
}

/** Enabled and known to work: what lies there counts, and new copies may go there. */
export function isSound(backend: BackendFacts | undefined): boolean {
  return backend !== undefined && backend.enabled && backend.health === 'healthy';
}

/** Known to work, enabled or not: what lies there may be read, and removed. */
export function isReachable(backend: BackendFacts | undefined): boolean {
  return backend?.health === 'healthy';
}

/** Disabled, gone, or unhealthy for so long that another has to stand in. */
export function isReplaced(backend: BackendFacts | undefined, limits: PlanLimits): boolean {
  if (!backend?.enabled) return true;
  return backend.health === 'unhealthy' && backend.healthAgeMs > limits.outageGraceMs;
}
