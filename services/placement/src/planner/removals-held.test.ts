import { expect, test } from '@jest/globals';
import fc from 'fast-check';
import { backends, policies, runs } from '../reconcile/arbitrary-world.ts';
import { SimulatedWorld } from '../reconcile/simulated-world.ts';
import { planBlob } from './plan-blob.ts';

test('while removals are held a plan makes and reads copies as ever, removes none, and names each that it would', () => {
  fc.assert(
    fc.property(backends, policies, (start, wanted) => {
      const simulated = new SimulatedWorld(start, wanted);
      const [world, { replicas }] = [simulated.world(), simulated.blob()];
      const free = planBlob(world, { policies: wanted, replicas });
      const held = planBlob({ ...world, removalsHeld: true }, { policies: wanted, replicas });
      const going = free.steps.flatMap((step) => (step.kind === 'remove' ? [step.backendId] : []));
      const named = held.problems.flatMap((one) => (one.code === 'removals_held' ? [one.backendId] : []));
      expect(named).toEqual(going);
      expect(held.steps.filter(({ kind }) => kind === 'remove')).toEqual([]);
      const copies = free.steps.filter(({ kind }) => kind === 'copy');
      expect(held.steps.filter(({ kind }) => kind === 'copy')).toEqual(copies);
      if (going.length === 0) expect(held).toEqual(free);
    }),
    { numRuns: runs },
  );
});
