import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { backends, policies, runs } from '../reconcile/arbitrary-world.ts';
import { limits, SimulatedWorld } from '../reconcile/simulated-world.ts';
import { isReachable, isSound } from './facts.ts';
import type { BackendFacts, ReplicaFacts, WantedCopies, World } from './facts.ts';
import { isReadable, planBlob } from './plan-blob.ts';
import type { BlobPlan } from './plan-blob.ts';

interface Case {
  world: World;
  policies: readonly WantedCopies[];
  replicas: readonly ReplicaFacts[];
  plan: BlobPlan;
}

/** Plans for any world, and hands all of it to `check`. */
function always(check: (given: Case) => void): void {
  fc.assert(
    fc.property(backends, policies, (start, wanted) => {
      const simulated = new SimulatedWorld(start, wanted);
      const [world, { replicas }] = [simulated.world(), simulated.blob()];
      check({ world, policies: wanted, replicas, plan: planBlob(world, { policies: wanted, replicas }) });
    }),
    { numRuns: runs },
  );
}

const removalsIn = ({ steps }: BlobPlan) => steps.flatMap((step) => (step.kind === 'remove' ? [step] : []));
const copiesIn = ({ steps }: BlobPlan) => steps.flatMap((step) => (step.kind === 'copy' ? [step] : []));

describe('the rules of a plan', () => {
  test('1: what goes is surplus to as many good copies as wanted, each on an enabled healthy backend and freshly read', () => {
    always(({ world, policies: wanted, replicas, plan }) => {
      const atLeast = Math.max(...wanted.map((policy) => policy.replicas));
      for (const { backendId, staying } of removalsIn(plan)) {
        expect(new Set(staying).size).toBeGreaterThanOrEqual(atLeast);
        expect(staying).not.toContain(backendId);
        for (const id of staying) {
          expect(isSound(world.backends.get(id))).toBe(true);
          const replica = replicas.find((known) => known.backendId === id);
          const isFresh = replica?.state === 'available' && (replica.verifiedAgoMs ?? Infinity) <= limits.freshMs;
          const isReadBack = plan.steps.some((step) => step.kind === 'verify' && step.backendId === id);
          expect(isFresh || isReadBack).toBe(true);
        }
      }
    });
  });

  test('2: copies come from what can be read, one that was read whole first', () => {
    always(({ world, replicas, plan }) => {
      for (const { from, to } of copiesIn(plan)) {
        const source = replicas.find(({ backendId }) => backendId === from);
        expect(source && isReadable(source.state) && isReachable(world.backends.get(from))).toBe(true);
        expect(from).not.toBe(to);
        const better = replicas.some(
          ({ backendId, state }) => state === 'available' && isReachable(world.backends.get(backendId)),
        );
        expect(source?.state).toBe(better ? 'available' : 'unverified');
      }
    });
  });

  test('4: what can not be satisfied is left where it is, and said', () => {
    always(({ plan }) => {
      if (plan.problems.length > 0) expect(removalsIn(plan)).toEqual([]);
    });
  });

  test('5: a disabled backend gets nothing, and keeps what it holds while a policy names it', () => {
    always(({ world, policies: wanted, plan }) => {
      for (const { to } of copiesIn(plan)) expect(isSound(world.backends.get(to))).toBe(true);
      const named = new Set(wanted.flatMap(({ backendIds }) => backendIds));
      for (const { backendId } of removalsIn(plan))
        expect(world.backends.get(backendId)?.enabled || !named.has(backendId)).toBe(true);
    });
  });

  test('6: on an unhealthy backend nothing is touched, and nothing elsewhere goes for its sake', () => {
    always(({ world, plan }) => {
      const isAway = (id: string): boolean => !isReachable(world.backends.get(id));
      for (const step of plan.steps) {
        const touched = step.kind === 'copy' ? [step.from, step.to] : [step.backendId];
        if (step.kind === 'remove') touched.push(...step.staying);
        expect(touched.filter(isAway)).toEqual([]);
      }
    });
  });

  test('8: the same facts give the same plan', () => {
    always(({ world, policies: wanted, replicas, plan }) => {
      expect(planBlob(world, { policies: wanted, replicas })).toEqual(plan);
    });
  });

  test('10: whatever goes, good or bad, goes after all that is copied and read', () => {
    always(({ plan }) => {
      const kinds = plan.steps.map(({ kind }) => kind);
      const first = kinds.indexOf('remove');
      if (first >= 0) expect(new Set(kinds.slice(first))).toEqual(new Set(['remove']));
    });
  });
});

const hour = 3_600_000;
const backend = (id: string, more: Partial<BackendFacts> = {}): BackendFacts => {
  return { id, enabled: true, health: 'healthy', healthAgeMs: hour, ...more };
};
const worldOf = (...all: BackendFacts[]): World => ({ backends: new Map(all.map((one) => [one.id, one])), limits });
const good = (backendId: string): ReplicaFacts => ({ backendId, state: 'available', verifiedAgoMs: 0 });

describe('a plan', () => {
  const policy = [{ backendIds: ['a', 'b', 'c'], replicas: 2 }];

  test('lets a later backend stand in only after the time that an outage may last', () => {
    const sick = (healthAgeMs: number) =>
      worldOf(backend('a'), backend('b', { health: 'unhealthy', healthAgeMs }), backend('c'));
    const blob = { policies: policy, replicas: [good('a'), good('b')] };
    expect(planBlob(sick(5 * hour), blob)).toMatchObject({ steps: [], problems: [{ code: 'backend_unhealthy' }] });
    expect(planBlob(sick(7 * hour), blob).steps).toEqual([
      { kind: 'copy', from: 'a', to: 'c' },
      { kind: 'verify', backendId: 'c' },
    ]);
  });

  test('replaces a corrupt replica where it is, and one that belongs elsewhere before it goes', () => {
    const world = worldOf(backend('a'), backend('b'), backend('c'));
    const corrupt: ReplicaFacts = { backendId: 'c', state: 'corrupt', verifiedAgoMs: null };
    expect(planBlob(world, { policies: policy, replicas: [good('a'), corrupt] }).steps).toEqual([
      { kind: 'copy', from: 'a', to: 'b' },
      { kind: 'verify', backendId: 'b' },
      { kind: 'remove', backendId: 'c', staying: ['a', 'b'] },
    ]);
    const here: ReplicaFacts = { ...corrupt, backendId: 'b' };
    expect(planBlob(world, { policies: policy, replicas: [good('a'), here] }).steps).toEqual([
      { kind: 'copy', from: 'a', to: 'b' },
      { kind: 'verify', backendId: 'b' },
    ]);
  });

  test('for content of two classes wants what either policy wants', () => {
    const world = worldOf(backend('a'), backend('b'), backend('c'));
    const both = [
      { backendIds: ['a'], replicas: 1 },
      { backendIds: ['b'], replicas: 1 },
    ];
    const { steps } = planBlob(world, { policies: both, replicas: [good('a'), good('c')] });
    expect(steps.map((step) => `${step.kind} ${step.kind === 'copy' ? step.to : step.backendId}`)).toEqual([
      'copy b',
      'verify b',
      'remove c',
    ]);
  });

  test('of what no file has is empty', () => {
    expect(planBlob(worldOf(backend('a')), { policies: [], replicas: [good('a')] }).steps).toEqual([]);
  });
});
