import type { Baseline } from '../baselines/baseline.ts';
import type { RequestsJob, WireRequest } from '../driver/jobs.ts';
import type { Contender } from '../measure/alternate.ts';
import type { Processes } from '../measure/processes.ts';
import type { Setting } from './workload.ts';

/** Where requests go, and whose work they are. */
export interface Endpoint {
  port: number;
  token?: string;
  processes: Processes;
}

/** How many requests at a time, and in all. */
export type Pace = Pick<RequestsJob, 'connections' | 'count' | 'readBytes'>;

/** How much a connection reads at once: answers of some KiB, and long bodies. */
export const shortReads = 16_384;
export const longReads = 262_144;

export const mebibyte = 2 ** 20;

/** A bare server, and the PostgreSQL behind it where there is one. */
export function endpointOf({ port, pid }: Baseline, postgres: number | null = null): Endpoint {
  return { port, processes: { node: [pid], postgres } };
}

/** Sends the requests in turn. */
export function requester(
  { driver }: Setting,
  name: string,
  endpoint: Endpoint,
  requests: readonly WireRequest[],
  pace: Pace,
): Contender {
  return { name, processes: endpoint.processes, run: () => driver.run(requestsJob(endpoint, requests, pace)) };
}

/** The driver's job of sending requests in turn. */
export function requestsJob({ port, token }: Endpoint, requests: readonly WireRequest[], pace: Pace): RequestsJob {
  return { kind: 'requests', port, ...(token === undefined ? {} : { token }), requests, ...pace };
}

/** GETs of paths. */
export function gets(paths: readonly string[]): WireRequest[] {
  return paths.map((path) => ({ method: 'GET', path, expect: 200 }));
}

/** In an order that is the same in every run and not the one that things were made in. */
export function shuffled<T>(items: readonly T[]): T[] {
  const result = [...items];
  let state = 12_345;
  for (let last = result.length - 1; last > 0; last--) {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
    const other = (state >>> 8) % (last + 1);
    const [a, b] = [result[last], result[other]];
    if (a !== undefined && b !== undefined) [result[last], result[other]] = [b, a];
  }
  return result;
}
