import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startBarePostgres } from './baselines/postgres.ts';
import { Driver } from './driver/driver.ts';
import { describeMachine } from './measure/machine.ts';
import type { Row } from './measure/row.ts';
import type { Options } from './options.ts';
import type { Results } from './report/results.ts';
import { printRows } from './report/table.ts';
import { startStowage } from './system/stowage.ts';
import type { Stowage } from './system/stowage.ts';
import { workloads } from './workloads/all.ts';
import type { Workload } from './workloads/workload.ts';

/** Runs all workloads that were chosen, and hands each one's table to `show` as soon as it is there. */
export async function measureAll(options: Options, show: (text: string) => void): Promise<Results> {
  const started = performance.now();
  await using stack = new AsyncDisposableStack();
  const scratch = await mkdtemp(join(tmpdir(), 'stowage-bench-'));
  stack.defer(() => rm(scratch, { recursive: true, force: true }));
  // PostgreSQL runs under another account when root starts it.
  await chmod(scratch, 0o755);
  const driver = new Driver();
  stack.defer(() => driver.close());
  let interrupted = false;
  const interrupt = (): void => {
    interrupted = true;
    // Without its driver the workload fails, and clears away what it started.
    void driver.close();
  };
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, interrupt);
  const postgres = await startBarePostgres(scratch);
  stack.defer(() => postgres.close());
  const shared = options.small ? await startShared(options, scratch, stack) : null;
  const machine = await describeMachine(scratch, postgres.pool);
  const chosen = workloads.filter((workload) => Object.keys(titlesOf(workload)).some(options.chooses));
  const titles = Object.fromEntries(chosen.flatMap((workload) => Object.entries(titlesOf(workload))));
  const rows: Row[] = [];
  const failures: Record<string, string> = {};
  for (const { name, run } of chosen) {
    try {
      const found = await run({ driver, postgres, shared, scratch, say, ...options });
      for (const part of new Set(found.map(({ workload }) => workload))) {
        const own = found.filter(({ workload }) => workload === part);
        show(`\n### ${part}: ${titles[part] ?? ''}\n\n${printRows(own)}`);
      }
      rows.push(...found);
    } catch (error) {
      if (interrupted) throw error;
      // What the others took half an hour to find is worth keeping.
      failures[name] = error instanceof Error ? error.message : String(error);
      say(`${name} failed: ${failures[name]}`);
    }
  }
  return { machine, rounds: options.rounds, minutes: (performance.now() - started) / 60_000, titles, failures, rows };
}

function titlesOf({ name, title, more }: Workload): Record<string, string> {
  return { [name]: title, ...more };
}

/** For a run that only sees whether everything works, starting each workload's own would take longest. */
async function startShared(
  { modes, profile }: Options,
  scratch: string,
  stack: AsyncDisposableStack,
): Promise<Stowage[]> {
  const systems: Stowage[] = [];
  for (const mode of modes) {
    const system = await startStowage({ mode, scratch, name: 'shared', profile });
    stack.defer(() => system.close());
    systems.push(system);
  }
  return systems;
}

function say(text: string): void {
  process.stderr.write(`${text}\n`);
}
