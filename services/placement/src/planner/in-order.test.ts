import { expect, test } from '@jest/globals';
import fc from 'fast-check';
import { backends, policies, runs } from '../reconcile/arbitrary-world.ts';
import { limits, SimulatedWorld } from '../reconcile/simulated-world.ts';
import { arrangementsInOrder } from './in-order.ts';
import { planBlob } from './plan-blob.ts';
import type { RecordedState, ReplicaFacts } from './facts.ts';

const hour = 3_600_000;

test('a blob that lies as its class is in order has neither a step nor a problem, however long ago it was read', () => {
  let inOrder = 0;
  fc.assert(
    fc.property(
      backends,
      policies,
      fc.infiniteStream(fc.constantFrom(null, 0, 2 * hour, 999 * hour)),
      (start, wanted, agos) => {
        const world = new SimulatedWorld(start, wanted).world();
        // The classes of the policies are their places.
        const policyOf = (fileClass: string) => wanted.slice(Number(fileClass), Number(fileClass) + 1);
        const toPlan = (fileClass: string, replicas: readonly ReplicaFacts[]) => {
          return { policies: policyOf(fileClass), replicas };
        };
        const classes = wanted.map((_, index) => String(index));
        for (const { fileClass, backendIds } of arrangementsInOrder(world, classes, toPlan)) {
          if (backendIds.length === 0) continue;
          inOrder += 1;
          const state: RecordedState = 'available';
          const replicas = backendIds.map((backendId) => ({
            backendId,
            state,
            verifiedAgoMs: agos.next().value ?? null,
          }));
          for (const some of [replicas, replicas.toReversed()]) {
            const { steps, problems, lost } = planBlob(world, toPlan(fileClass, some));
            expect({ steps, problems, lost }).toEqual({ steps: [], problems: [], lost: false });
          }
        }
      },
    ),
    { numRuns: runs },
  );
  expect(inOrder).toBeGreaterThan(100);
});

test('where a backend is away, no arrangement is in order', () => {
  const backend = (id: string, health: 'healthy' | 'unhealthy') => ({ id, enabled: true, health, healthAgeMs: 0 });
  const world = {
    backends: new Map([
      ['a', backend('a', 'healthy')],
      ['b', backend('b', 'unhealthy')],
    ]),
    limits,
  };
  const of = (backendIds: string[]) =>
    arrangementsInOrder(world, ['x'], (_, replicas) => ({
      policies: [{ backendIds, replicas: backendIds.length }],
      replicas,
    }));
  expect(of(['a'])).toEqual([{ fileClass: 'x', backendIds: ['a'] }]);
  expect(of(['a', 'b'])).toEqual([{ fileClass: 'x', backendIds: [] }]);
});
