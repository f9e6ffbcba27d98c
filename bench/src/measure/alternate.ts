import type { Load } from '../driver/jobs.ts';
import { forgetPeaks, usageOf } from './processes.ts';
import type { Processes, Usage } from './processes.ts';
import { rowOf } from './row.ts';
import type { Reading, Row, Unit } from './row.ts';

/** Something that does the same work as others, and is measured beside them. */
export interface Contender {
  name: string;
  processes: Processes;
  /** Does the work once; `round` is -1 to warm up. */
  run(round: number): Promise<Load>;
  /** Clears away what a round left; not timed. */
  after?(load: Load): Promise<void>;
}

/** Runs all contenders in turn, round after round, so that what the machine does meanwhile meets all of them alike. */
export async function alternate(
  workload: string,
  unit: Unit,
  contenders: readonly Contender[],
  rounds: number,
): Promise<Row[]> {
  const readings = await readAll(contenders, rounds);
  return contenders.map((contender) => rowOf(workload, unit, contender.name, readings.get(contender) ?? []));
}

/** The rounds of each contender, after one that warms up and does not count. */
export async function readAll(contenders: readonly Contender[], rounds: number): Promise<Map<Contender, Reading[]>> {
  const readings = new Map<Contender, Reading[]>(contenders.map((contender) => [contender, []]));
  for (const contender of contenders) await contender.after?.(await contender.run(-1));
  for (let round = 0; round < rounds; round++) {
    for (const contender of contenders) readings.get(contender)?.push(await readOnce(contender, round));
  }
  return readings;
}

/** One round of one contender. */
export async function readOnce(contender: Contender, round: number): Promise<Reading> {
  forgetPeaks(contender.processes);
  const before = usageOf(contender.processes);
  const load = await contender.run(round);
  const usage = since(before, usageOf(contender.processes));
  await contender.after?.(load);
  return { load, usage };
}

/** By name: a helper process may come or go in between. */
function since(before: readonly Usage[], after: readonly Usage[]): Usage[] {
  const total = (usages: readonly Usage[], name: string, what: 'cpuSeconds' | 'residentBytes' | 'peakBytes'): number =>
    usages.filter((usage) => usage.name === name).reduce((sum, usage) => sum + usage[what], 0);
  return [...new Set(after.map(({ name }) => name))].map((name) => ({
    name,
    cpuSeconds: total(after, name, 'cpuSeconds') - total(before, name, 'cpuSeconds'),
    residentBytes: total(after, name, 'residentBytes'),
    peakBytes: total(after, name, 'peakBytes'),
  }));
}
