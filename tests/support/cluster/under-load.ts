import { expect } from '@jest/globals';
import { Random, chooseSeed } from '../random.ts';
import { JobLedger } from './job-ledger.ts';
import { Load } from './load.ts';
import { LogKeeper } from './log-keeper.ts';
import type { Release } from './release.ts';
import { say, sayMet } from './report.ts';

const clients = 20;

/**
 * Has 20 clients upload, download and list while `work` goes on, and expects that none of them saw a request fail, that
 * every file that was acknowledged is there as it was, and that every one has the copy that a job had to make. `work` gives
 * what it did, for the report.
 */
export async function expectNothingLost(release: Release, work: (random: Random) => Promise<string>): Promise<void> {
  const random = new Random(chooseSeed());
  const root = await release.logIn();
  const ledger = await JobLedger.open(root);
  const directory = await root.makeDirectory('under-load');
  const logs = await LogKeeper.start(release);
  try {
    const load = await Load.start(root, { clients, directoryId: directory['id'], random: random.fork() });
    const done = await work(random);
    const met = await load.stop();
    sayMet(`${done}, seed ${random.seed}`, met);
    if (met.failures.length > 0) {
      const ids = met.failures.flatMap((failure) => /"request_id":"([^"]+)"/.exec(failure)?.[1] ?? []);
      say(`what the pods said of it (all of it in ${logs.folder}):\n${(await logs.linesWith(ids)).join('\n')}`);
    }
    expect(met.failures).toEqual([]);
    expect(met.uploads).toBeGreaterThan(clients);
    expect(await load.damaged()).toEqual([]);
    const jobs = await ledger.settle(load.kept);
    say(`jobs afterwards: ${JSON.stringify(jobs.counts)}`);
    expect(jobs.lost).toEqual([]);
  } finally {
    logs.stop();
  }
}
