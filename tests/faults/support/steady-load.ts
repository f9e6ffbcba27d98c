import { Agent, request } from 'node:http';
import { readdir } from 'node:fs/promises';

/** What one request met. */
export interface Outcome {
  /** 0 where there was no answer. */
  status: number;
  ms: number;
  retryAfter: string | null;
  /** When it began, on the clock of performance.now(). */
  at: number;
}

/** Something to ask for, over and over. */
export interface Target {
  url: string;
  path: string;
  token: string | null;
  timeoutMs: number;
}

/** One GET over an agent's connections. */
export function getOnce(agent: Agent, { url, path, token, timeoutMs }: Target): Promise<Outcome> {
  const at = performance.now();
  const { promise, resolve } = Promise.withResolvers<Outcome>();
  const end = (status: number, retryAfter: string | null): void =>
    resolve({ status, retryAfter, at, ms: performance.now() - at });
  const headers = token === null ? {} : { authorization: `Bearer ${token}` };
  const call = request(`${url}${path}`, { agent, headers, timeout: timeoutMs }, (response) => {
    response.resume();
    response.once('error', () => end(0, null));
    response.once('end', () => end(response.statusCode ?? 0, response.headers['retry-after'] ?? null));
  });
  call.once('timeout', () => call.destroy());
  call.once('error', () => end(0, null));
  call.end();
  return promise;
}

/** `clients` that ask again as soon as they are answered, until `stopped`. */
export async function askSteadily(target: Target, clients: number, stopped: () => boolean): Promise<Outcome[]> {
  const agent = new Agent({ keepAlive: true, maxSockets: clients });
  const outcomes: Outcome[] = [];
  const run = async (): Promise<void> => {
    while (!stopped()) outcomes.push(await getOnce(agent, target));
  };
  await Promise.all(Array.from({ length: clients }, run));
  agent.destroy();
  return outcomes;
}

/** The time that `share` of the requests took at most, in ms. */
export function percentile(outcomes: readonly Outcome[], share: number): number {
  const sorted = outcomes.map(({ ms }) => ms).sort((a, b) => a - b);
  return Math.round((sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0) * 10) / 10;
}

/** How many file descriptors a process has open. */
export async function openDescriptors(pid: number): Promise<number> {
  return (await readdir(`/proc/${pid}/fd`)).length;
}
