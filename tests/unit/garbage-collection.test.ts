import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { toAppError } from '@stowage/common/errors';
import { CollectionWorld } from '@stowage/tests/support/collection-world';
import type { Candidate } from '@stowage/tests/support/collection-world';
import fc from 'fast-check';

/** R18 at the size of CI. */
const interleavings = 300;

let world: CollectionWorld;
beforeAll(async () => {
  world = await CollectionWorld.start();
});
afterAll(() => world.close());

/** What becomes of an upload, and of the file after it. */
const life = fc.record({
  /** `sync_replicas`: a copy on the other backend before the commit. */
  copied: fc.boolean(),
  /** How many collections are over when it, sealed by then, is committed. */
  after: fc.nat({ max: 3 }),
  end: fc.constantFrom('commits', 'commits', 'commits', 'expires', 'expires while it commits'),
  later: fc.constantFrom('stays', 'is recycled', 'is restored', 'is purged'),
});
type Life = typeof life extends fc.Arbitrary<infer L> ? L : never;

/** Gives whether the file was acknowledged and is not purged. */
async function live(given: Life, candidate: Candidate, collected: readonly Collected[]): Promise<boolean> {
  const { near, far } = world;
  await world.setUpload(candidate, 'open');
  await world.setUpload(candidate, 'finalizing');
  world.seal(candidate, near);
  if (given.copied) {
    await world.turn();
    world.seal(candidate, far);
  }
  await collected[given.after - 1]?.promise;
  const committed =
    given.end === 'expires'
      ? Promise.resolve(false)
      : world.commit(candidate, given.copied ? [near, far] : [near]).then(
          () => true,
          (error: unknown) => {
            // A commit may be refused, once its upload was given up; never by what collects.
            if (toAppError(error).code === 'gone' && given.end !== 'commits') return false;
            throw error;
          },
        );
  if (given.end !== 'commits') {
    await world.setUpload(candidate, 'abandoned');
    await world.abandon(candidate);
  }
  const acknowledged = await committed;
  await world.setUpload(candidate, null);
  if (!acknowledged || given.later === 'stays') return acknowledged;
  await world.recycle(candidate);
  if (given.later === 'is restored') await world.restore(candidate);
  if (given.later === 'is purged') await world.purge(candidate);
  return given.later !== 'is purged';
}

async function collect(rounds: readonly Collected[]): Promise<void> {
  for (const { resolve } of rounds) {
    await world.reconcile();
    await world.removeDue();
    resolve();
  }
}

type Collected = PromiseWithResolvers<void>;

function three(): Collected[] {
  return Array.from({ length: 3 }, () => Promise.withResolvers<void>());
}

test(`${interleavings} interleavings of uploads, deletes and restores with what collects garbage cost no live blob (R18)`, async () => {
  const scenario = fc.array(life, { minLength: 1, maxLength: 4 });
  await fc.assert(
    fc.asyncProperty(fc.scheduler(), scenario, fc.nat({ max: 3 }), async (scheduler, lives, orphans) => {
      await world.reset(orphans);
      const before = (await world.live()).length;
      world.turn = () => scheduler.schedule(Promise.resolve());
      const candidates = lives.map(() => world.candidate());
      const collected = three();
      const all = Promise.all([
        ...lives.map((given, index) => live(given, candidates[index] ?? world.candidate(), collected)),
        collect(collected).then(() => false),
      ]);
      const kept = await scheduler.waitFor(all);
      world.turn = async () => undefined;
      expect(world.violations).toEqual([]);
      const files = await world.live();
      expect(files).toHaveLength(before + kept.filter((stays) => stays).length);
      // In the end there is what the metadata names, where the policy wants it, and nothing else.
      await collect(three());
      expect(world.violations).toEqual([]);
      expect(world.stored(world.near)).toEqual(files);
      expect(world.stored(world.far)).toEqual([]);
    }),
    { numRuns: interleavings },
  );
}, 600_000);
