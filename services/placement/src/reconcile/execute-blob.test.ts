import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { isReachable, isSound } from '../planner/facts.ts';
import { planBlob, wantedBackends } from '../planner/plan-blob.ts';
import { executeBlob } from './execute-blob.ts';
import type { BlobOutcome } from './execute-blob.ts';
import type { BlobFacts } from './executor.ts';
import { backends, fates, policies, runs } from './arbitrary-world.ts';
import { Crash, SimulatedWorld } from './simulated-world.ts';
import type { SimulatedBackend } from './simulated-world.ts';

async function run(simulated: SimulatedWorld, wanted = simulated.policies): Promise<BlobOutcome | 'crashed'> {
  const needs = {
    executor: simulated,
    view: async () => ({
      world: simulated.world(),
      toPlan: ({ replicas }: BlobFacts) => ({ policies: wanted, replicas }),
    }),
    signal: new AbortController().signal,
  };
  return executeBlob(needs, simulated.blob()).catch((error: unknown) => {
    if (error instanceof Crash) return 'crashed';
    throw error;
  });
}

/** Runs until a whole run does nothing more; the faults are used up by then. */
async function settle(simulated: SimulatedWorld): Promise<BlobOutcome> {
  for (let count = 0; count < 60; count += 1) {
    const before = simulated.done.length;
    if (count % 2 === 1) simulated.pass();
    const outcome = await run(simulated);
    if (outcome === 'crashed' || outcome.failures.length > 0) continue;
    if (simulated.done.length === before || outcome.plan.rescue) return outcome;
  }
  throw new Error(`it never settles: ${simulated.done.join()}`);
}

const scenario = fc.record({ backends, policies, fates });

test('a process that stood still after it claimed a removal removes nothing: others may have kept the replica', async () => {
  const hour = 3_600_000;
  const good = (id: string): SimulatedBackend => ({
    ...{ id, enabled: true, health: 'healthy', healthAgeMs: hour, truth: 'good' },
    recorded: { state: 'available', verifiedAgoMs: 0 },
  });
  const simulated = new SimulatedWorld([good('a'), good('b')], [{ backendIds: ['a'], replicas: 1 }]);
  const clock = { now: 0 };
  const note = simulated.note.bind(simulated);
  simulated.note = async (blob, taken) => {
    const accepted = await note(blob, taken);
    if (taken.kind === 'removing') clock.now += 130_000;
    return accepted;
  };
  const { failures } = await executeBlob(
    {
      executor: simulated,
      view: async () => ({ world: simulated.world(), toPlan: (blob) => simulated.toPlan(blob) }),
      signal: new AbortController().signal,
      now: () => clock.now,
    },
    simulated.blob(),
  );
  expect(simulated.good()).toEqual(['a', 'b']);
  expect(failures).toMatchObject([{ backendId: 'b', code: 'unavailable' }]);
});

describe('whatever the state, the crashes and the failures', () => {
  test('no good copy is lost, and it comes to lie where the policies say as far as that can be', async () => {
    await fc.assert(
      fc.asyncProperty(scenario, fc.option(policies), async (start, changed) => {
        // The simulated world itself throws where a good copy is lost that rule 1 keeps.
        const simulated = new SimulatedWorld(start.backends, start.policies, start.fates);
        await run(simulated);
        // What is on its way by the old policies must not harm the new ones.
        if (changed) {
          simulated.policies = changed;
          simulated.judges.push(changed);
        }
        const world = simulated;
        const { plan } = await settle(world);
        const known = world.blob().replicas;
        const recorded = new Map(known.map((replica) => [replica.backendId, replica.state]));
        const wanted = wantedBackends(world.world(), world.policies);
        const readable = known.some(
          ({ backendId, state }) =>
            isReachable(world.backends.get(backendId)) && (state === 'available' || state === 'unverified'),
        );
        if (plan.lost) expect(known.filter(({ backendId }) => isGoodAndReachable(world, backendId))).toEqual([]);
        if (!readable) return;
        const sound = wanted.backendIds.filter((id) => isSound(world.backends.get(id)));
        for (const id of sound) expect(recorded.get(id)).toBe('available');
        if (wanted.missing > 0 || sound.length < wanted.backendIds.length) {
          expect(plan.problems).not.toEqual([]);
          return;
        }
        expect(plan).toEqual({ steps: [], problems: [], lost: false, rescue: false });
        const named = new Set(world.policies.flatMap(({ backendIds }) => backendIds));
        const surplus = known.filter(({ backendId }) => !wanted.backendIds.includes(backendId));
        for (const { backendId } of surplus) {
          const backend = world.backends.get(backendId);
          expect(!isReachable(backend) || (backend?.enabled === false && named.has(backendId))).toBe(true);
        }
      }),
      { numRuns: runs },
    );
  });

  test('a second run finds nothing to do', async () => {
    await fc.assert(
      fc.asyncProperty(scenario, async (start) => {
        const simulated = new SimulatedWorld(start.backends, start.policies, start.fates);
        await settle(simulated);
        const before = simulated.done.length;
        const again = await run(simulated);
        if (again === 'crashed') throw new Error('nothing can crash any more');
        const since = simulated.done.slice(before);
        // What can't be read is looked at again each time, in case it came back.
        expect(since.filter((done) => !again.plan.rescue || !done.startsWith('verify'))).toEqual([]);
      }),
      { numRuns: runs },
    );
  });

  test('several runs at once, by different policies, lose no good copy either', async () => {
    await fc.assert(
      fc.asyncProperty(fc.scheduler(), scenario, policies, policies, async (scheduler, start, second, third) => {
        const simulated = new SimulatedWorld(start.backends, start.policies, start.fates);
        simulated.turn = () => scheduler.schedule(Promise.resolve());
        simulated.judges = [start.policies, second, third];
        const all = simulated.judges.map((wanted) => run(simulated, wanted));
        await scheduler.waitFor(Promise.all(all));
        simulated.turn = async () => undefined;
        await settle(simulated);
      }),
      { numRuns: runs },
    );
  });

  test('with nothing in the way a run does what its plan said, copy by copy and removal by removal', async () => {
    await fc.assert(
      fc.asyncProperty(backends, policies, async (start, wanted) => {
        const honest = start.map((backend): SimulatedBackend => ({
          ...backend,
          truth: ['available', 'unverified'].includes(backend.recorded?.state ?? '') ? 'good' : 'absent',
          recorded: backend.recorded?.state === 'removing' ? null : backend.recorded,
        }));
        const simulated = new SimulatedWorld(honest, wanted);
        const { steps, rescue } = planBlob(simulated.world(), simulated.toPlan(simulated.blob()));
        // What a second look at bad replicas will show, no plan can say.
        if (rescue) return;
        const said = steps.map((step) => `${step.kind} ${step.kind === 'copy' ? step.to : step.backendId}`);
        await run(simulated);
        expect(simulated.done).toEqual(said);
      }),
      { numRuns: runs },
    );
  });
});

function isGoodAndReachable(world: SimulatedWorld, id: string): boolean {
  const backend = world.backends.get(id);
  return backend?.truth === 'good' && isReachable(backend);
}
