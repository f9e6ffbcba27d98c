import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Driver } from './driver/driver.ts';
import type { Row } from './measure/alternate.ts';
import { optionsOf } from './options.ts';
import { printRows } from './report/table.ts';
import { workloads } from './workloads/all.ts';

const options = optionsOf(process.argv.slice(2));
const say = (text: string): void => void process.stderr.write(`${text}\n`);
const scratch = await mkdtemp(join(tmpdir(), 'stowage-bench-'));
// PostgreSQL runs under another account when root starts it.
await chmod(scratch, 0o755);
const driver = new Driver();
const rows: Row[] = [];
try {
  for (const workload of workloads.filter(({ name }) => options.chooses(name))) {
    say(`${workload.name}: ${workload.title}`);
    const found = await workload.run({ driver, scratch, say, ...options });
    process.stdout.write(printRows(found));
    rows.push(...found);
  }
} finally {
  await driver.close();
  await rm(scratch, { recursive: true, force: true });
}
