import { execFile } from 'node:child_process';
import { cp, lstat, mkdir, readdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { usageOf } from '../measure/processes.ts';
import type { Row } from '../measure/row.ts';
import { summarise } from '../measure/summary.ts';
import { startStowage } from '../system/stowage.ts';
import type { Mode } from '../system/stowage.ts';
import { mebibyte } from './contenders.ts';
import type { Setting, Workload } from './workload.ts';

const repository = join(import.meta.dirname, '../../..');
/** After which a process that serves nobody is called idle. */
const idleMs = 3_000;

/** W7: what it takes to begin. */
export const w7: Workload = {
  name: 'W7',
  title: 'from the start of the launcher to the first ready answer, PostgreSQL included',
  run: async (setting) => {
    const rows: Row[] = [];
    const modes = setting.small ? setting.modes.slice(0, 1) : setting.modes;
    for (const mode of modes) rows.push(...(await starts(setting, mode)));
    if (!setting.small) rows.push(...(await installation(setting)));
    return rows;
  },
};

async function starts({ scratch, rounds, small }: Setting, mode: Mode): Promise<Row[]> {
  const [first, second, idle]: number[][] = [[], [], []];
  for (let round = 0; round < rounds; round++) {
    const name = `w7-${round}`;
    const options = { mode, scratch, name, compileCache: join(scratch, `compile-cache-${mode}-${round}`) };
    const fresh = await startStowage(options);
    await fresh.stop();
    const again = await startStowage(options);
    await new Promise((resolve) => setTimeout(resolve, small ? 0 : idleMs));
    const resident = usageOf(again.processes).reduce((sum, { residentBytes }) => sum + residentBytes, 0);
    await again.close();
    first?.push(fresh.startMs);
    second?.push(again.startMs);
    idle?.push(resident / mebibyte);
  }
  const row = { workload: 'W7', unit: 'ms' } as const;
  const memory = { 'idle RSS MiB': summarise(idle ?? []) };
  return [
    { ...row, contender: `${mode}, first start`, value: summarise(first ?? []), details: {} },
    { ...row, contender: `${mode}, second start`, value: summarise(second ?? []), details: memory },
  ];
}

/**
 * What `npm start` installs, into a folder of its own; the registry or npm's cache bounds how long it takes. Nothing where
 * npm can't install.
 */
async function installation({ scratch, say }: Setting): Promise<Row[]> {
  say('npm ci, as npm start runs it');
  const run = promisify(execFile);
  const folder = join(scratch, 'install');
  const { stdout } = await run('git', ['ls-files', '*package.json', 'package-lock.json', '.npmrc'], {
    cwd: repository,
  });
  for (const file of stdout.trim().split('\n')) {
    await mkdir(dirname(join(folder, file)), { recursive: true });
    await cp(join(repository, file), join(folder, file));
  }
  const started = performance.now();
  const flags = ['--omit=dev', '--include=optional', '--include=peer', '--no-audit', '--no-fund'];
  try {
    await run('npm', ['ci', ...flags], { cwd: folder });
  } catch (error) {
    say(`npm ci failed, so it is not measured: ${String(error)}`);
    return [];
  }
  const value = summarise([performance.now() - started]);
  const size = summarise([(await bytesBelow(join(folder, 'node_modules'))) / mebibyte]);
  return [{ workload: 'W7', contender: 'npm ci, production', unit: 'ms', value, details: { 'on disk MiB': size } }];
}

async function bytesBelow(folder: string): Promise<number> {
  const entries = await readdir(folder, { withFileTypes: true });
  const sizes = await Promise.all(
    entries.map(async (entry) => {
      const path = join(folder, entry.name);
      return entry.isDirectory() ? bytesBelow(path) : (await lstat(path)).blocks * 512;
    }),
  );
  return sizes.reduce((sum, size) => sum + size, 0);
}
