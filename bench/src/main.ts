import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startBarePostgres } from './baselines/postgres.ts';
import { Driver } from './driver/driver.ts';
import type { Row } from './measure/row.ts';
import { optionsOf } from './options.ts';
import type { Options } from './options.ts';
import { printRows } from './report/table.ts';
import { startStowage } from './system/stowage.ts';
import type { Stowage } from './system/stowage.ts';
import { workloads } from './workloads/all.ts';

const options = optionsOf(process.argv.slice(2));
const rows = await measure(options);
process.stderr.write(`${rows.length} rows\n`);

async function measure(options: Options): Promise<Row[]> {
  await using stack = new AsyncDisposableStack();
  const scratch = await mkdtemp(join(tmpdir(), 'stowage-bench-'));
  stack.defer(() => rm(scratch, { recursive: true, force: true }));
  // PostgreSQL runs under another account when root starts it.
  await chmod(scratch, 0o755);
  const driver = new Driver();
  stack.defer(() => driver.close());
  // Without its driver the run fails, and clears away what it started.
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => void driver.close());
  const postgres = await startBarePostgres(scratch);
  stack.defer(() => postgres.close());
  const shared = options.small ? await startShared(options, scratch, stack) : null;
  const rows: Row[] = [];
  for (const workload of workloads.filter(({ name }) => options.chooses(name))) {
    const found = await workload.run({ driver, postgres, shared, scratch, say, ...options });
    process.stdout.write(`\n### ${workload.name}: ${workload.title}\n\n${printRows(found)}`);
    rows.push(...found);
  }
  return rows;
}

async function startShared({ modes }: Options, scratch: string, stack: AsyncDisposableStack): Promise<Stowage[]> {
  const systems: Stowage[] = [];
  for (const mode of modes) {
    const system = await startStowage(mode, scratch, 'shared');
    stack.defer(() => system.close());
    systems.push(system);
  }
  return systems;
}

function say(text: string): void {
  process.stderr.write(`${text}\n`);
}
