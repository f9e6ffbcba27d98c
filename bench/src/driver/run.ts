import type { Latencies } from './latencies.ts';
import type { Load } from './jobs.ts';

/** A load without what the process adds. */
export type Outcome = Omit<Load, 'driverCpuSeconds'>;

interface Work {
  bytes: number;
  ids?: string[];
  parts?: Record<string, number>;
  medians?: Record<string, number>;
}

/** Times `work` and sums it up. */
export async function timed(latencies: Latencies, operations: number, work: () => Promise<Work>): Promise<Outcome> {
  const started = performance.now();
  const { bytes, ids = [], parts = {}, medians = {} } = await work();
  const seconds = (performance.now() - started) / 1000;
  const [p50Ms, p99Ms] = [latencies.quantile(0.5), latencies.quantile(0.99)];
  return { seconds, operations, bytes, p50Ms, p99Ms, ids, parts, medians };
}
