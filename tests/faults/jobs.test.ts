import { afterAll, afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { randomUUID } from 'node:crypto';
import { startBeside } from '../support/beside.ts';
import type { Beside } from '../support/beside.ts';
import { logIn, until } from '../support/client.ts';
import type { Client } from '../support/client.ts';
import { FaultReport } from '../support/fault-report.ts';
import { faultSizes } from '../support/fault-sizes.ts';
import { JobTable } from '../support/job-table.ts';
import { startSystem, uniqueName } from '../support/system.ts';
import type { Mode, System } from '../support/system.ts';

const leaseMs = 2_000;
const maxAttempts = 3;
/** How far a look for what is due may lie behind. */
const pollMs = 5_000;
const report = new FaultReport('R13 and R33 jobs: a worker that stands still, and jobs that can not be done');
afterAll(() => report.print());

let system: System;
let client: Client;
let jobs: JobTable;

async function open(mode: Mode): Promise<void> {
  system = await startSystem(mode, { STOWAGE_JOB_LEASE: `${leaseMs}ms`, STOWAGE_LOG_LEVEL: 'fatal' });
  client = await logIn(system.url);
  jobs = await JobTable.open(system.databaseUrl);
}

afterEach(async () => {
  await jobs?.close();
  await system?.close();
});

/** What a job that reads the content of a new file is told. */
async function verification(): Promise<Record<string, unknown>> {
  const file = await client.putFile(uniqueName(), 'content');
  return jobs.verification(String(file['id']));
}

describe('R13 a worker that stands still while it holds a job', () => {
  let other: Beside | null = null;
  const stopped = new Set<number>();

  beforeEach(() => open('services'));

  afterEach(async () => {
    for (const pid of stopped) process.kill(pid, 'SIGCONT');
    await other?.close();
  });

  function stop(pid: number): void {
    process.kill(pid, 'SIGSTOP');
    stopped.add(pid);
  }

  function goOn(pid: number): void {
    process.kill(pid, 'SIGCONT');
    stopped.delete(pid);
  }

  test('loses it to another, whose result stays, and what it writes when it goes on is refused', async () => {
    const params = await verification();
    const [worker, registry] = [await system.pidOf('placement'), await system.pidOf('backend-registry')];
    other = await startBeside(system, 'placement');
    stop(other.pid);
    // The job waits for a store that stands still, and so does its worker in the middle of it.
    stop(registry);
    const id = await jobs.insert('verify_blob', params);
    const held = await until(async () => {
      const job = await jobs.read(id);
      return job.state === 'running' ? job : null;
    });
    stop(worker);
    goOn(other.pid);
    const begin = performance.now();
    const taken = await until(async () => {
      await jobs.wake();
      const job = await jobs.read(id);
      return job.attempt === 2 ? job : null;
    });
    const takenAfterMs = Math.round(performance.now() - begin);
    expect(BigInt(taken.fence)).toBeGreaterThan(BigInt(held.fence));
    goOn(registry);
    const done = await until(async () => {
      const job = await jobs.read(id);
      return job.state === 'succeeded' ? job : null;
    });
    goOn(worker);
    // It is at work again as soon as it does another job, so it has had its say about this one.
    stop(other.pid);
    const next = await jobs.insert('verify_blob', params);
    await until(async () => (await jobs.read(next)).state === 'succeeded');
    expect(await jobs.read(id)).toEqual(done);
    const states = (await jobs.events(id)).map(({ state }) => state);
    expect(states).toEqual(['running', 'running', 'succeeded']);
    report.add('R13 worker stopped', { 'taken over after ms': takenAfterMs, 'lease in ms': leaseMs });
  });
});

describe.each<Mode>(['standalone', 'services'])('R33 a job that can not be done, %s', (mode) => {
  beforeEach(() => open(mode));

  async function untilOver(ids: readonly string[], state: string): Promise<void> {
    for (const id of ids) {
      await until(async () => {
        await jobs.wake();
        return (await jobs.read(id)).state === state;
      }, 60_000);
    }
  }

  test('fails with a cause after its attempts, further and further apart, and lets all others pass', async () => {
    const good = await verification();
    const poison = { ...good, backend_id: randomUUID() };
    const bad: string[] = [];
    for (let made = 0; made < faultSizes.poisonJobs; made += 1) {
      bad.push(await jobs.insert('verify_blob', poison, maxAttempts));
    }
    const begin = performance.now();
    const others: string[] = [];
    for (let made = 0; made < faultSizes.poisonJobs; made += 1) others.push(await jobs.insert('verify_blob', good));
    await untilOver(others, 'succeeded');
    const passedMs = Math.round(performance.now() - begin);
    await untilOver(bad, 'failed');
    const pauses: number[] = [];
    for (const id of bad) {
      expect(await jobs.read(id)).toMatchObject({
        attempt: maxAttempts,
        error_code: expect.stringMatching(/^[a-z_]+$/),
      });
      const events = await jobs.events(id);
      expect(events.filter(({ state }) => state === 'running')).toHaveLength(maxAttempts);
      events.forEach(({ state, at }, index) => {
        const next = events[index + 1];
        if (state !== 'pending' || !next) return;
        const pause = next.at.getTime() - at.getTime();
        expect(pause).toBeLessThanOrEqual(1_000 * 2 ** (maxAttempts - 1) + pollMs);
        pauses.push(pause);
      });
    }
    // All began at once; with jitter they do not come again at once.
    expect(new Set(pauses.map((pause) => Math.round(pause / 50))).size).toBeGreaterThan(bad.length / 2);
    report.add(`R33 ${mode}`, { poison: bad.length, 'others done after ms': passedMs, pauses: pauses.length });
  });

  test('asked for again runs once for each call that is answered with 200', async () => {
    const id = await jobs.insert('verify_blob', { ...(await verification()), backend_id: randomUUID() }, 1);
    await untilOver([id], 'failed');
    let accepted = 0;
    for (let round = 0; round < 3; round += 1) {
      const answers = await Promise.all([1, 2, 3].map(() => client.post(`/api/jobs/${id}/retry`)));
      for (const { status } of answers) expect([200, 409]).toContain(status);
      const more = answers.filter(({ status }) => status === 200).length;
      // A second one may come when the run that the first one asked for is over already.
      expect(more).toBeGreaterThan(0);
      accepted += more;
      await untilOver([id], 'failed');
    }
    const runs = (await jobs.events(id)).filter(({ state }) => state === 'running').length;
    expect(runs).toBe(1 + accepted);
    report.add(`R33 ${mode}, retry`, { calls: 9, accepted, runs });
  });
});
