import { expect, test } from '@jest/globals';
import fc from 'fast-check';
import { cyclesOf } from './cycles.ts';

/** Told by walking up from each as far as there can be new ones. */
function slowly(parents: ReadonlyMap<string, string | null>): string[] {
  return [...parents.keys()].filter((start) => {
    let at = parents.get(start) ?? null;
    for (let step = 0; step < parents.size && at !== null && at !== start; step += 1) at = parents.get(at) ?? null;
    return at === start;
  });
}

test('who lies below itself is in a cycle, and nobody else', () => {
  const parent = fc.option(fc.integer({ min: 0, max: 12 }).map(String));
  fc.assert(
    fc.property(fc.array(parent, { maxLength: 12 }), (list) => {
      const parents = new Map(list.map((of, index): [string, string | null] => [String(index), of]));
      expect([...cyclesOf(parents)].sort()).toEqual(slowly(parents).sort());
    }),
    { numRuns: 2_000 },
  );
});
