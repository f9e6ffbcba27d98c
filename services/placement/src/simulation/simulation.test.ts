import { expect, test } from '@jest/globals';
import { Simulation } from './simulation.ts';

/** How many seeds are run; 10,000 for the whole size. */
const seeds = Number(process.env['STOWAGE_SIMULATION_SEEDS'] ?? 500);
/** The first of them, to run one again. */
const first = Number(process.env['STOWAGE_TEST_SEED'] ?? 1);
const steps = 2_000;

test('whatever happens in whatever order, nothing wanted is lost, nothing purged comes back, and all converges', async () => {
  const sum = { blobs: 0, jobs: 0, changes: 0, rounds: 0 };
  const failed: string[] = [];
  for (let seed = first; seed < first + seeds && failed.length < 3; seed += 1) {
    try {
      const { blobs, jobs, changes, rounds } = await new Simulation(seed).run(steps);
      sum.blobs += blobs;
      sum.jobs += jobs;
      sum.changes += changes;
      sum.rounds = Math.max(sum.rounds, rounds);
    } catch (error) {
      failed.push(`STOWAGE_TEST_SEED=${seed} STOWAGE_SIMULATION_SEEDS=1: ${String(error)}`);
    }
  }
  process.stderr.write(`simulation: ${JSON.stringify({ seeds, first, ...sum })}\n`);
  expect(failed.join('\n\n')).toBe('');
}, 900_000);

test('a seed gives the same run each time', async () => {
  expect(await new Simulation(first).run(steps)).toEqual(await new Simulation(first).run(steps));
});
