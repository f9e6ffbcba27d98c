import { startBucketServer } from '../baselines/baseline.ts';
import { forgetPeaks, usageOf } from '../measure/processes.ts';
import type { Usage } from '../measure/processes.ts';
import type { Row } from '../measure/row.ts';
import { summarise } from '../measure/summary.ts';
import { ask, noReconcile, resultOf, textOf } from '../system/api.ts';
import { seedDirectory, seededBytes } from '../system/seed.ts';
import type { Stowage } from '../system/stowage.ts';
import { mebibyte } from './contenders.ts';
import { Started } from './workload.ts';
import type { Setting, Workload } from './workload.ts';

/** The number of the seeded directory. */
const directory = 9;
const roundsMax = 3;

/**
 * W9: a full reconcile that finds everything in order, after one that found the same. Rows are seeded, and the store on which
 * they say that the content lies makes its listing up.
 */
export const w9: Workload = {
  name: 'W9',
  title: 'a full reconcile with nothing to do over 1,000,000 blobs, on a store whose listing is simulated',
  run: async (setting) => {
    await using started = new Started(setting, 'w9');
    const count = setting.small ? 2_000 : 1_000_000;
    const server = await started.add(startBucketServer(directory, count, seededBytes));
    const rows: Row[] = [];
    for (const system of await started.ownSystems()) {
      setting.say(`seeding ${count} blobs (${system.mode})`);
      const endpoint = `http://127.0.0.1:${server.port}`;
      rows.push(await reconcileAgain(setting, system, endpoint, count));
    }
    return rows;
  },
};

async function reconcileAgain(
  { rounds, say }: Setting,
  system: Stowage,
  endpoint: string,
  count: number,
): Promise<Row> {
  const backendId = await makeBackend(system, endpoint);
  const policy = { backends: [backendId], replicas: 1 };
  const { job } = await ask(system, 'PUT', '/api/policies/placement/default', policy);
  await resultOf(system, job);
  await seedDirectory(system, directory, count, backendId);
  // Before the first, so that what that one leaves behind counts as growth too.
  const before = residentOf(system);
  const first = await measure(system, count);
  say(`the first took ${Math.round(first.ms)} ms`);
  const runs: Run[] = [];
  for (let round = 0; round < Math.min(rounds, roundsMax); round += 1) runs.push(await measure(system, count));
  const names = [...before.keys()];
  const growth = (name: string): number[] =>
    runs.map((run) => ((run.peaks.get(name) ?? 0) - (before.get(name) ?? 0)) / mebibyte);
  const all = runs.map((_, index) => names.reduce((sum, name) => sum + (growth(name)[index] ?? 0), 0));
  const details: Row['details'] = { 'RSS growth MiB': summarise(all) };
  details['first run s'] = summarise([first.ms / 1_000]);
  for (const name of names.length > 1 ? names : []) details[`growth of ${name}`] = summarise(growth(name));
  return { workload: 'W9', contender: system.mode, unit: 'ms', value: summarise(runs.map(({ ms }) => ms)), details };
}

interface Run {
  ms: number;
  /** Of each Node process, in bytes. */
  peaks: Map<string, number>;
}

async function measure(system: Stowage, count: number): Promise<Run> {
  await noReconcile(system);
  forgetPeaks(system.processes);
  const started = performance.now();
  const { job } = await ask(system, 'POST', '/api/jobs/enqueue-full-reconcile', {});
  const { blobs, copied, removed, failed } = await resultOf(system, job);
  const ms = performance.now() - started;
  if (blobs !== count || copied !== 0 || removed !== 0 || failed !== 0)
    throw new Error(
      `of ${count} blobs ${String(blobs)} were seen; ${String(copied)}, ${String(removed)}, ${String(failed)}`,
    );
  return { ms, peaks: bytesOf(system, ({ peakBytes }) => peakBytes) };
}

function residentOf(system: Stowage): Map<string, number> {
  return bytesOf(system, ({ residentBytes }) => residentBytes);
}

/** Without PostgreSQL's processes. */
function bytesOf({ processes }: Stowage, pick: (usage: Usage) => number): Map<string, number> {
  const bytes = new Map<string, number>();
  for (const usage of usageOf(processes)) {
    if (usage.name !== 'PostgreSQL') bytes.set(usage.name, (bytes.get(usage.name) ?? 0) + pick(usage));
  }
  return bytes;
}

async function makeBackend(system: Stowage, endpoint: string): Promise<string> {
  const keys = { access_key_id: 'bench', secret_access_key: 'bench-bench' };
  const config = { endpoint, region: 'us-east-1', bucket: system.mode, force_path_style: true, ...keys };
  return textOf(await ask(system, 'POST', '/api/backends', { name: 'simulated', type: 's3', config }), 'id');
}
